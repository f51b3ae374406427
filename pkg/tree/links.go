package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// maxKnown bounds what is kept in memory of files with several names.
const maxKnown = 16 << 10

// fileState identifies an unchanged file: two names are links of the same file if it is
// the same when each of them is opened.
type fileState struct {
	id    identity
	ctime unix.Timespec
	size  int64
}

func stateOf(st *unix.Stat_t) fileState {
	return fileState{identityOf(st), st.Ctim, st.Size}
}

// name is its name in the scratch directory.
func (s fileState) name() string {
	return fmt.Sprintf("file-%x-%x-%x-%x-%x", s.id.Dev, s.id.Ino, s.ctime.Sec, s.ctime.Nsec, s.size)
}

// links preserves hard links. The copy of a file's first name is linked into the scratch
// directory, and its other names from there, so that nothing needed for them is in
// memory.
type links struct {
	mu    sync.Mutex
	busy  map[fileState]chan struct{}
	known map[identity]fileState
	full  bool // known is incomplete
}

// hold waits until no other goroutine copies a name of the file.
func (l *links) hold(ctx context.Context, s fileState) (release func(), err error) {
	for {
		l.mu.Lock()
		other := l.busy[s]
		if other == nil {
			break
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer l.mu.Unlock()
	if l.busy == nil {
		l.busy = map[fileState]chan struct{}{}
	}
	mine := make(chan struct{})
	l.busy[s] = mine
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.busy, s)
		close(mine)
	}, nil
}

// seen reports whether a name of the file is known to have been copied, and whether the
// file may be in the scratch directory in this state.
func (l *links) seen(s fileState) (known, maybe bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have, known := l.known[s.id]
	return known, l.full || known && have == s
}

func (l *links) remember(s fileState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[identity]fileState{}
	}
	if _, ok := l.known[s.id]; !ok && len(l.known) >= maxKnown {
		l.full = true
		return
	}
	l.known[s.id] = s
}

// linkOrFile copies one of several names of an open file.
func (c *copier) linkOrFile(ctx context.Context, l *level, e item, src int, st *unix.Stat_t) error {
	s := stateOf(st)
	release, err := c.links.hold(ctx, s)
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
	for _, e := range []unix.Errno{unix.EMLINK, unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS, unix.EXDEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
