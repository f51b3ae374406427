package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// ChangedSince returns the path of an entry of the tree that changed at or after a time
// of the file server's clock: "." for the tree's own directory, empty if nothing
// changed. Every change in a tree updates the ctime of a file or a directory, which
// nobody can set back. The server is asked about every entry, whatever the kernel has
// in its cache. Memory and descriptors are bounded as for Count.
func ChangedSince(ctx context.Context, root *os.Root, since time.Time, workers int) (string, error) {
	top, err := openTop(root, nil)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &changeFinder{since: since, cancel: cancel, workers: make(chan struct{}, max(workers, 1))}
	if err = s.check(top.src, "", "."); err == nil {
		w := walker{visitor: s}
		err = w.run(ctx, top)
	}
	err = errors.Join(err, context.Cause(ctx), top.close())
	var found *changeFound
	var moved *movedError
	switch {
	case errors.As(err, &found):
		return found.path, nil
	case errors.As(err, &moved):
		return moved.path, nil
	}
	return "", err
}

// changeFound ends the search.
type changeFound struct{ path string }

func (e *changeFound) Error() string { return e.path + " has changed" }

type changeFinder struct {
	reader
	since   time.Time
	cancel  context.CancelCauseFunc // records the first error and stops all goroutines
	workers chan struct{}
}

// entry checks a directory before it is listed: if it has not changed, neither has its
// listing.
func (s *changeFinder) entry(ctx context.Context, l *level, e item) (*level, error) {
	if e.kind == fs.ModeIrregular {
		st, err := fsat.LstatNow(l.src, e.name)
		if err != nil {
			return nil, asChange(err, l.join(e.name))
		}
		e.kind = kindOf(st.Mode)
	}
	if e.kind.IsDir() {
		down, err := openLevel(l, e.name)
		if err != nil {
			return nil, asChange(err, l.join(e.name))
		}
		if err := s.check(down.src, "", down.path); err != nil {
			return nil, errors.Join(err, down.close())
		}
		return down, nil
	}
	select {
	case s.workers <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l.work.Go(func() {
		defer func() { <-s.workers }()
		if err := s.check(l.src, e.name, l.join(e.name)); err != nil {
			s.cancel(err)
		}
	})
	return nil, nil
}

func (s *changeFinder) unreadable(l *level, err error) error { return asChange(err, l.path) }

// check checks one entry, or the directory itself for the empty name.
func (s *changeFinder) check(dir int, entry, name string) error {
	changed, err := fsat.ChangeTime(dir, entry)
	if err != nil {
		return asChange(fmt.Errorf("%s: %w", name, err), name)
	}
	if !changed.Before(s.since) {
		return &changeFound{name}
	}
	return nil
}

// asChange turns the error of an entry that was removed or replaced into a changeFound.
func asChange(err error, name string) error {
	if fsat.IsGone(err) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return &changeFound{name}
	}
	return err
}
