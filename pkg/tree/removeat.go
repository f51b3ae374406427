package tree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// Sizes in bytes of the buffer for a directory's listing: some hundred entries, or some
// thousand for the first largePieces open directories. A change to a directory
// invalidates the listing in an NFS client's cache, and the client then fetches much of
// it again, however little is read.
const (
	pieceSize      = 16 << 10
	largePieceSize = 128 << 10
	largePieces    = 32
)

//nolint:gochecknoglobals // pools are shared by all removals
var pieces, largeBuffers = pieceOf(pieceSize), pieceOf(largePieceSize)

func pieceOf(size int) *sync.Pool {
	return &sync.Pool{New: func() any {
		b := make([]byte, size)
		return &b
	}}
}

// piece returns a buffer for a listing, to be released after use.
func (w *remover) piece() (buf []byte, release func()) {
	pool, free := pieces, func() {}
	select {
	case w.large <- struct{}{}:
		pool, free = largeBuffers, func() { <-w.large }
	default:
	}
	b := pool.Get().(*[]byte) //nolint:forcetypeassert // nothing else is put in
	return *b, func() { pool.Put(b); free() }
}

// open opens a directory of d if it is of the same file system. It does not block,
// whatever has replaced the directory.
func (w *remover) open(d *directory, name string) (*directory, error) {
	fd := -1
	err := d.allowed(name, func() (err error) {
		fd, err = fsat.Open(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	sub := &directory{fd: fd, name: name, up: d, depth: d.depth + 1}
	st, err := fsat.Stat(fd, name)
	if err == nil && st.Dev != w.dev {
		err = ErrMountPoint
	}
	if err != nil {
		sub.close()
		return nil, err
	}
	sub.ino = st.Ino
	return sub, nil
}

func (d *directory) close() { _ = unix.Close(d.fd) } // only read

// rewind restarts the listing.
func (d *directory) rewind() error {
	_, err := unix.Seek(d.fd, 0, 0)
	return err
}

// unlink removes an entry of d that is not a directory or, with AT_REMOVEDIR, an empty
// directory. It returns only errors that say what the entry is instead, which the
// caller handles; all others have been handled.
func (w *remover) unlink(ctx context.Context, d *directory, name string, flags int) (gone bool, err error) {
	if !w.before(ctx) {
		return false, nil
	}
	err = d.allowed("", func() error {
		return fsat.Restart(func() error { return unix.Unlinkat(d.fd, name, flags) })
	})
	switch {
	case err == nil:
		w.changes.Add(1)
		w.removed.Add(1)
		w.found(-1)
		return true, nil
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return false, err
	}
	return w.failed(d, name, &os.PathError{Op: "remove", Path: name, Err: err}), nil
}

// move renames a directory of d into the base.
func (w *remover) move(ctx context.Context, d *directory, name string) error {
	if !w.before(ctx) {
		return ctx.Err()
	}
	b := d.base
	b.mu.Lock()
	defer b.mu.Unlock()
	to := b.nameOf(b.moved)
	err := d.allowed(name, func() error {
		return b.dir.allowed("", func() error {
			return fsat.Restart(func() error { return unix.Renameat(d.fd, name, b.dir.fd, to) })
		})
	})
	if err != nil {
		return &os.LinkError{Op: "rename", Old: name, New: to, Err: err}
	}
	w.changes.Add(1)
	b.moved++
	return nil
}

// allowed calls do, which the server may refuse because of the mode of the directory or,
// if a name is given, of that entry. It then adds u+rwx and calls do again.
func (d *directory) allowed(name string, do func() error) error {
	err := do()
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	changed := d.unlock()
	if name != "" && unlockAt(d.fd, name) == nil {
		changed = true
	}
	if changed {
		err = do()
	}
	return err
}

// unlock adds u+rwx to the directory, unless it does not belong to the tree.
func (d *directory) unlock() bool {
	d.unlocking.Do(func() {
		if d.base == nil {
			return
		}
		st, err := fsat.Stat(d.fd, d.name)
		d.unlocked = err == nil && st.Mode&ownerAll != ownerAll && unix.Fchmod(d.fd, st.Mode&modeBits|ownerAll) == nil
	})
	return d.unlocked
}

// unlockAt adds u+rwx to a directory that its owner may not even open.
func unlockAt(dir int, name string) error {
	fd, err := fsat.Open(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // only a name
	st, err := fsat.Stat(fd, name)
	if err != nil || st.Mode&ownerAll == ownerAll {
		return errors.Join(err, fs.ErrPermission)
	}
	return fsat.Chmod(fd, name, st.Mode&modeBits|ownerAll)
}

const (
	ownerAll = 0o700
	modeBits = permBits | specialBits
)
