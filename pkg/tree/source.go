package tree

import (
	"errors"
	"io/fs"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// kindNow asks the server for the current type of an entry.
func (c *copier) kindNow(l *level, name string) (fs.FileMode, error) {
	st, err := fsat.LstatNow(l.src, name)
	if err != nil {
		return 0, sourceError{err}
	}
	return kindOf(st.Mode), nil
}

// unlessGone returns the error unless the entry was removed, which it counts.
func (c *copier) unlessGone(l *level, err error) error {
	var source sourceError
	if c.Frozen || !errors.As(err, &source) || !fsat.IsGone(err) {
		return err
	}
	l.missed.Store(true)
	c.Progress.gone.Add(1)
	return nil
}

// retriable reports whether the name should be looked up again after the error.
func (c *copier) retriable(err error) bool {
	if errors.Is(err, ErrChanged) {
		return true
	}
	var source sourceError
	return !c.Frozen && errors.As(err, &source) && fsat.IsGone(err)
}
