// Package tree works on whole directory trees of an export, several entries at
// a time, since over a network most of the time is waiting for answers.
package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// Removal removes trees that others may still change. Its memory and descriptors
// do not grow with the depth of a tree or the width of a directory.
//
// It follows no symlink and enters no other file system: every directory is opened
// from its parent. What a mode forbids, it allows its owner (u+rwx) and tries again.
type Removal struct {
	// Workers is how many directories are emptied at a time.
	Workers int
	// Before is optional. It is called before each change, by several goroutines at
	// a time, with how many the removal has made so far; an error ends the removal
	// and is returned.
	Before func(ctx context.Context, changes int64) error
	// Found is optional. It is told how many more entries are known to be there,
	// which is negative when some are gone.
	Found func(n int64)
}

// ErrWritten is the Err of a LeftError when a directory is filled by others as
// fast as it is emptied.
var ErrWritten = errors.New("it is still written to")

// ErrMountPoint is the Err of a LeftError when another file system is mounted in
// the tree.
var ErrMountPoint = errors.New("another file system is mounted there")

// LeftError says that some of a tree could not be removed; the rest is gone.
type LeftError struct {
	// Path of one of the entries left, from the name of the tree on.
	Path string
	// Err is why: ErrWritten, ErrMountPoint or what the server said.
	Err error
}

func (e *LeftError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns why.
func (e *LeftError) Unwrap() error { return e.Err }

// Remove removes name, which has no slash, in parent with all that is below it, and
// returns how many entries went. That name, or anything below it, is gone already
// is no error.
//
// Errors: *LeftError; that of Before; context.Cause when ctx ends.
func (r Removal) Remove(ctx context.Context, parent *os.File, name string) (removed int64, err error) {
	return r.run(ctx, name, parent, func(ctx context.Context, w *remover, holder *directory) {
		w.found(1)
		if _, err := w.unlink(ctx, holder, name, 0); errors.Is(err, unix.EISDIR) {
			w.directory(ctx, holder, name)
		}
	})
}

// Empty removes all that dir holds, as Remove does, and leaves dir.
func (r Removal) Empty(ctx context.Context, dir *os.File) (removed int64, err error) {
	return r.run(ctx, dir.Name(), dir, func(ctx context.Context, w *remover, d *directory) {
		d.base = newBase(d)
		w.empty(ctx, d)
	})
}

// Remove is Removal.Remove for a path below root.
func Remove(ctx context.Context, root *os.Root, name string, workers int) (int64, error) {
	dir, err := root.Open(path.Dir(name))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("remove %s: %w", name, err)
	}
	defer dir.Close() //nolint:errcheck // only read
	return Removal{Workers: workers}.Remove(ctx, dir, path.Base(name))
}

func (r Removal) run(ctx context.Context, name string, in *os.File, do func(context.Context, *remover, *directory)) (removed int64, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := &remover{Removal: r, fail: stop, slots: make(chan struct{}, max(r.Workers-1, 0)), large: make(chan struct{}, largePieces)}
	st, err := fsat.Stat(int(in.Fd()), in.Name())
	if err != nil {
		return 0, err
	}
	w.dev = st.Dev
	if ctx.Err() == nil {
		do(ctx, w, &directory{fd: int(in.Fd())})
	}
	w.found(-w.pending.Load()) // whatever is left is found again
	err = context.Cause(ctx)
	if err == nil && w.left != nil {
		err = w.left
	}
	if err != nil {
		err = fmt.Errorf("remove %s: %w", name, err)
	}
	return w.removed.Load(), err
}

// remover is a Removal at work on a tree.
type remover struct {
	Removal
	// fail ends the removal.
	fail func(error)
	// slots are the workers beside the calling goroutine.
	slots chan struct{}
	large chan struct{} // large pieces of listings in use
	dev   uint64        // of the file system that the tree is in

	removed, changes, pending atomic.Int64

	mu   sync.Mutex
	left *LeftError
}

func (w *remover) found(n int64) {
	w.pending.Add(n)
	if w.Found != nil {
		w.Found(n)
	}
}

// leave notes that an entry stays. That somebody writes is said only where
// nothing else is wrong.
func (w *remover) leave(d *directory, name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == nil || errors.Is(w.left.Err, ErrWritten) && !errors.Is(err, ErrWritten) {
		w.left = &LeftError{Path: path.Join(d.path(), name), Err: err}
	}
}

// trouble sorts out why an entry of d could not be removed: because it is gone
// after all, which is true, because of the server, which ends the removal, or
// because of the entry, which is left.
func (w *remover) trouble(d *directory, name string, err error) (gone bool) {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return true
	case errors.Is(err, unix.ESTALE) && d.gone():
		return true // another controller removes the tree too, and was faster
	}
	for _, server := range []error{unix.ESTALE, unix.EIO, unix.ETIMEDOUT, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, server) {
			w.fail(fmt.Errorf("%s: %w", path.Join(d.path(), name), err))
			return false
		}
	}
	w.leave(d, name, err)
	return false
}

// before is called before a change.
func (w *remover) before(ctx context.Context) (goOn bool) {
	if ctx.Err() != nil {
		return false
	}
	if w.Before != nil {
		if err := w.Before(ctx, w.changes.Load()); err != nil {
			w.fail(err)
			return false
		}
	}
	return true
}
