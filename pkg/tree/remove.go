// Package tree copies, removes and counts whole directory trees of an export. It works
// on several entries concurrently, as most of the time is spent waiting for the server.
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

// Removal removes trees that others may still change. Its memory and descriptors do not
// grow with the depth of a tree or the width of a directory.
//
// It follows no symlink and enters no other file system: every directory is opened from
// its parent. Where a directory's mode denies access, it adds u+rwx and retries.
type Removal struct {
	// Workers is how many directories are emptied at a time.
	Workers int
	// Before is optional. It is called before each change, concurrently, with the number
	// of changes made so far; its error ends the removal and is returned.
	Before func(ctx context.Context, changes int64) error
	// Found is optional. It is called with how many more entries are known to be left,
	// negative when some have been removed.
	Found func(n int64)
}

// ErrWritten is the Err of a LeftError when others fill a directory as fast as it is
// emptied.
var ErrWritten = errors.New("it is still being written to")

// ErrMountPoint is the Err of a LeftError when another file system is mounted in
// the tree.
var ErrMountPoint = errors.New("another file system is mounted there")

// LeftError says that part of a tree could not be removed; the rest is gone.
type LeftError struct {
	// Path of one of the entries left, beginning with the name of the tree.
	Path string
	// Err is the reason: ErrWritten, ErrMountPoint or an error of the server.
	Err error
}

func (e *LeftError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *LeftError) Unwrap() error { return e.Err }

// Remove removes name, which has no slash, from parent with everything below it, and
// returns how many entries it removed. Entries that are already gone are not an error.
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

// Empty removes the content of dir as Remove does, but not dir.
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

// remover is one run of a Removal.
type remover struct {
	Removal
	// fail ends the removal.
	fail func(error)
	// slots are the workers in addition to the calling goroutine.
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

// keep records an entry that stays. ErrWritten is only reported if there is no other
// reason.
func (w *remover) keep(d *directory, name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == nil || errors.Is(w.left.Err, ErrWritten) && !errors.Is(err, ErrWritten) {
		w.left = &LeftError{Path: path.Join(d.path(), name), Err: err}
	}
}

// failed handles the error of removing an entry of d. It returns true if the entry is
// gone after all, ends the removal if the server is the reason, and keeps the entry
// otherwise.
func (w *remover) failed(d *directory, name string, err error) (gone bool) {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return true
	case errors.Is(err, unix.ESTALE) && d.gone():
		return true // another controller removes the tree as well
	}
	if isAny(err, unix.ESTALE, unix.EIO, unix.ETIMEDOUT, unix.ENOMEM, unix.EMFILE, unix.ENFILE) {
		w.fail(fmt.Errorf("%s: %w", path.Join(d.path(), name), err))
		return false
	}
	w.keep(d, name, err)
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
