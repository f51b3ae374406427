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

// fileState is what two names have in common that were one unchanged file when each
// of them was opened.
type fileState struct {
	id    identity
	ctime unix.Timespec
	size  int64
}

func stateOf(st *unix.Stat_t) fileState {
	return fileState{identityOf(st), st.Ctim, st.Size}
}

// name in the scratch directory.
func (s fileState) name() string {
	return fmt.Sprintf("file-%x-%x-%x-%x-%x", s.id.Dev, s.id.Ino, s.ctime.Sec, s.ctime.Nsec, s.size)
}

// links has the names that are one file become one file in the target. The copy of
// the first name is linked into the scratch directory, and the other names from there:
// in memory is nothing that the others depend on.
type links struct {
	mu    sync.Mutex
	busy  map[fileState]chan struct{}
	known map[identity]fileState
	full  bool // known is not all there is
}

// hold waits until nobody else makes a name of the file.
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

// met tells whether a name of the file is known to have been copied, and whether it
// may be in the scratch directory in this state.
func (l *links) met(s fileState) (known, maybe bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have, known := l.known[s.id]
	return known, l.full || known && have == s
}

func (l *links) note(s fileState) {
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

// linkOrFile makes one of several names of an open file.
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
	known, maybe := c.links.met(s)
	if maybe {
		err := e.make(func() error { return fsat.Link(dir, s.name(), l.dst, e.name) })
		switch {
		case err == nil, errors.Is(err, errMet):
			return err
		case errors.Is(err, fs.ErrNotExist): // or the target is, which shows now
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
	return c.noteLink(l, e.name, dir, s)
}

// noteLink puts the copy where further names are linked from, instead of one that has
// as many names as it can have.
func (c *copier) noteLink(l *level, name string, dir int, s fileState) error {
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
	c.links.note(s) // where there are no links, each name becomes a file of its own
	return nil
}

// noLink tells that a file cannot have one more name: EMLINK, or the others where the
// file system has no hard links.
func noLink(err error) bool {
	for _, e := range []unix.Errno{unix.EMLINK, unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS, unix.EXDEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
