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

// other copies an entry that is no directory, whatever it has become since it was
// listed. If it has become a directory, that is left to the walk.
func (c *copier) other(ctx context.Context, l *level, e item) error {
	for tries := e.tries; ; tries++ {
		err := c.step("try", l.join(e.name))
		if err == nil {
			err = c.copyAs(ctx, l, e)
		}
		switch {
		case err == nil, errors.Is(err, errMet):
			return nil
		case !c.again(err):
			return err
		case tries >= maxTries:
			return fmt.Errorf("%s: %w: %w", l.join(e.name), ErrChanged, err)
		}
		e.fresh = false
		if e.kind, err = c.look(l, e.name); err != nil {
			return c.unlessGone(l, err)
		}
		if e.kind.IsDir() {
			return l.lookAgain(e.name, tries)
		}
	}
}

func (c *copier) copyAs(ctx context.Context, l *level, e item) (err error) {
	switch {
	case e.kind.IsRegular():
		err = c.file(ctx, l, e)
	case e.kind&fs.ModeSymlink != 0:
		err = c.symlink(l, e)
	case e.kind&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		err = c.special(l, e)
	default:
		// A device of the server's or of some node must not come to be in a volume.
		c.Progress.devices.Add(1)
		return nil
	}
	if err == nil {
		l.count.Add(1)
		c.Progress.entries.Add(1)
	}
	return err
}

func (c *copier) file(ctx context.Context, l *level, e item) error {
	name := e.name
	// O_NONBLOCK, should it have become a fifo, which has no writer.
	src, err := fsat.Open(l.src, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return c.openError(l, name, err)
	}
	defer unix.Close(src) //nolint:errcheck // only read
	st, err := fsat.Stat(src, name)
	if err == nil {
		err = c.step("opened", l.join(name))
	}
	if err != nil {
		return sourceError{err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ErrChanged
	}
	if st.Nlink > 1 && c.Scratch != nil {
		return c.linkOrFile(ctx, l, e, src, &st)
	}
	return c.newFile(ctx, l, e, src, &st)
}

// openError is ErrChanged when the entry is no file: a symlink (ELOOP), a socket
// (ENXIO), or a device, which a mount may forbid to open (EACCES).
func (c *copier) openError(l *level, name string, err error) error {
	for _, e := range []unix.Errno{unix.ELOOP, unix.ENXIO, unix.ENODEV} {
		if errors.Is(err, e) {
			return ErrChanged
		}
	}
	if errors.Is(err, unix.EACCES) {
		if kind, lookErr := c.look(l, name); lookErr == nil && !kind.IsRegular() {
			return ErrChanged
		}
	}
	return sourceError{err}
}

// newFile makes the copy of an open file. Whatever goes wrong, fsync and close
// included, fails it; a copy whose source is gone is removed.
func (c *copier) newFile(ctx context.Context, l *level, e item, src int, st *unix.Stat_t) error {
	name, flags := e.name, unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK
	if !e.fresh {
		flags |= unix.O_EXCL // a name that is listed twice has its copy already
	}
	dst, err := fsat.Open(l.dst, name, flags, st.Mode&permBits)
	if err != nil {
		if errors.Is(err, fs.ErrExist) { // the client itself tells O_EXCL's own file
			return errMet
		}
		return err
	}
	t := transfer{
		c: c, l: l, dst: dst, src: src, name: name, size: st.Size,
		sparse: st.Size > sparseFrom && st.Blocks*blockSize < st.Size,
	}
	err = t.fill(ctx, st)
	if closeErr := unix.Close(dst); err == nil && closeErr != nil {
		err = &os.PathError{Op: "close", Path: l.join(name), Err: closeErr}
	}
	var source sourceError
	if errors.As(err, &source) {
		t.count(-t.counted)
		if rmErr := fsat.Unlink(l.dst, name); rmErr != nil {
			return fmt.Errorf("remove %s: %w", l.join(name), rmErr)
		}
	}
	return err
}

// longCall is how long a call takes at least during which a server was restarted.
const longCall = 5 * time.Second

// make calls do, which makes the entry in the target. A name that is there already was
// listed twice: errMet. But if nothing of that name can be there, the server has made
// it, and is asked again because its answer was lost in a restart. Where that cannot be
// told apart, EEXIST is an error.
func (e item) make(do func() error) error {
	began := time.Now()
	err := fsat.Restart(do)
	switch {
	case !errors.Is(err, fs.ErrExist):
		return err
	case e.fresh:
		return nil
	case time.Since(began) < longCall:
		return errMet
	}
	return err
}

func (c *copier) symlink(l *level, e item) error {
	name := e.name
	// One descriptor for both, so that they are of the same symlink.
	src, err := fsat.Open(l.src, name, unix.O_PATH, 0)
	if err != nil {
		return sourceError{err}
	}
	defer unix.Close(src) //nolint:errcheck // only read
	st, err := fsat.Stat(src, name)
	if err != nil {
		return sourceError{err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return ErrChanged
	}
	target, err := fsat.Readlink(src, "")
	if err != nil {
		return sourceError{err}
	}
	if err := e.make(func() error { return unix.Symlinkat(target, l.dst, name) }); err != nil {
		return &os.PathError{Op: "symlink", Path: l.join(name), Err: err}
	}
	return setAttributesAt(l.dst, name, &st)
}

// special makes a fifo or a socket anew. Neither has content.
func (c *copier) special(l *level, e item) error {
	name := e.name
	st, err := fsat.Lstat(l.src, name)
	if err != nil {
		return sourceError{err}
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFIFO && kind != unix.S_IFSOCK {
		return ErrChanged
	}
	if err := e.make(func() error { return unix.Mknodat(l.dst, name, kind|st.Mode&permBits, 0) }); err != nil {
		return &os.PathError{Op: "mknod", Path: l.join(name), Err: err}
	}
	return setAttributesAt(l.dst, name, &st)
}
