package tree

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// linkOrFile copies one of several names of an open file.
func (c *copier) linkOrFile(ctx context.Context, l *level, e item, src int, st *unix.Stat_t) error {
	s := stateOf(st)
	release, err := c.links.busy.Acquire(ctx, s)
	if err != nil {
		return err
	}
	defer release()
	dir, err := c.scratch.dir()
	if err != nil {
		return err
	}
	known, maybe := c.links.seen(s)
	if maybe {
		err := e.make(func() error { return fsat.Link(dir, s.name(), l.dst, e.name) })
		switch {
		case err == nil, errors.Is(err, errListedTwice):
			return err
		case errors.Is(err, fs.ErrNotExist): // or the target is missing, which shows below
		case noLink(err):
			known = true
		default:
			return err
		}
	}
	if err := c.newFile(ctx, l, e, src, st); err != nil {
		return err
	}
	if known {
		c.Progress.unlinked.Add(1)
	}
	return c.rememberLink(l, e.name, dir, s)
}

// rememberLink links the copy into the scratch directory for further names. It replaces
// one that has reached the limit of links.
func (c *copier) rememberLink(l *level, name string, dir int, s fileState) error {
	err := fsat.Link(l.dst, name, dir, s.name())
	if errors.Is(err, fs.ErrExist) {
		err = fsat.Unlink(dir, s.name())
		if err == nil {
			err = fsat.Link(l.dst, name, dir, s.name())
		}
	}
	if err != nil && !noLink(err) {
		return err
	}
	c.links.remember(s) // without links, each name becomes a separate file
	return nil
}

// noLink reports whether the file cannot have another link: EMLINK, or the other errors
// of file systems without hard links.
func noLink(err error) bool {
	return isAny(err, unix.EMLINK, unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS, unix.EXDEV)
}
