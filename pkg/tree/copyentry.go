package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// nonDirectory copies an entry that is not a directory, even if its type has changed
// since it was listed. One that has become a directory is left to the walk.
func (c *copier) nonDirectory(ctx context.Context, l *level, e item) error {
	for tries := e.tries; ; tries++ {
		err := c.step("try", l.join(e.name))
		if err == nil {
			err = c.copyAs(ctx, l, e)
		}
		switch {
		case err == nil, errors.Is(err, errListedTwice):
			return nil
		case !c.retriable(err):
			return err
		case tries >= maxTries:
			return fmt.Errorf("%s: %w: %w", l.join(e.name), ErrChanged, err)
		}
		e.fresh = false
		if e.kind, err = c.kindNow(l, e.name); err != nil {
			return c.unlessGone(l, err)
		}
		if e.kind.IsDir() {
			return l.retryLater(e.name, tries)
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
		// Skipped: a volume must not give access to devices of the server or a node.
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
	// O_NONBLOCK, in case it has become a fifo without a writer.
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

// openError returns ErrChanged if the entry is no longer a file: a symlink (ELOOP), a
// socket (ENXIO), or a device, which mount options may forbid to open (EACCES).
func (c *copier) openError(l *level, name string, err error) error {
	if isAny(err, unix.ELOOP, unix.ENXIO, unix.ENODEV) {
		return ErrChanged
	}
	if errors.Is(err, unix.EACCES) {
		if kind, lookErr := c.kindNow(l, name); lookErr == nil && !kind.IsRegular() {
			return ErrChanged
		}
	}
	return sourceError{err}
}

func (c *copier) symlink(l *level, e item) error {
	name := e.name
	// A single descriptor, so that attributes and target are of the same symlink.
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

// special creates a fifo or a socket. Neither has content.
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
