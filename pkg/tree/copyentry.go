package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func kindOf(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	}
	return fs.ModeDevice
}

func (c *copier) copyAs(ctx context.Context, p pair, name string, kind fs.FileMode) error {
	switch {
	case kind.IsRegular():
		return c.file(ctx, p, name)
	case kind.IsDir():
		return c.subdirectory(ctx, p, name)
	case kind&fs.ModeSymlink != 0:
		return c.symlink(p, name)
	case kind&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		return c.special(p, name)
	}
	// A device of the server's or of some node must not come to be in a volume.
	c.progress.devices.Add(1)
	c.progress.entries.Add(-1)
	return nil
}

func (c *copier) subdirectory(ctx context.Context, p pair, name string) (err error) {
	src, err := openDirAt(int(p.src.Fd()), name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return errChanged
	}
	if err != nil {
		return sourceError{err}
	}
	defer src.Close() //nolint:errcheck // only read
	to := int(p.dst.Fd())
	if err := restarted(func() error { return unix.Mkdirat(to, name, 0o700) }); err != nil {
		return &os.PathError{Op: "mkdir", Path: p.join(name), Err: err}
	}
	dst, err := openDirAt(to, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	err = c.directory(ctx, pair{src: src, dst: dst, path: p.join(name)})
	return err
}

func (c *copier) file(ctx context.Context, p pair, name string) error {
	// Without waiting for a writer, should it have become a fifo.
	src, err := openAt(int(p.src.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return errChanged
	}
	if err != nil {
		return sourceError{err}
	}
	defer unix.Close(src) //nolint:errcheck // only read
	st, err := statFD(src, name)
	if err != nil {
		return sourceError{err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errChanged
	}
	if st.Nlink > 1 {
		return c.linkOrFile(ctx, p, name, src, &st)
	}
	return c.newFile(ctx, p, name, src, &st)
}

func (c *copier) linkOrFile(ctx context.Context, p pair, name string, src int, st *unix.Stat_t) error {
	i := inode{uint64(st.Dev), st.Ino} //nolint:unconvert // not the same type on every platform
	for {
		l, isFirst := c.links.first(i, uint64(st.Nlink)) //nolint:unconvert // nor is this
		if isFirst {
			err := c.newFile(ctx, p, name, src, st)
			made := ""
			if err == nil {
				made = p.join(name)
			}
			c.links.done(i, l, made)
			return err
		}
		select {
		case <-l.made:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if l.path != "" {
			return c.to.Link(l.path, p.join(name))
		}
	}
}

// newFile makes the copy of an open file. Whatever goes wrong, fsync and close
// included, fails it; a copy whose source is gone is removed.
func (c *copier) newFile(ctx context.Context, p pair, name string, src int, st *unix.Stat_t) error {
	to := int(p.dst.Fd())
	// Not O_EXCL, which costs NFS another round trip: nobody else is here.
	dst, err := openAt(to, name, unix.O_WRONLY|unix.O_CREAT, st.Mode&permBits)
	if err != nil {
		return err
	}
	err = c.fill(ctx, dst, src, to, name, st)
	if closeErr := unix.Close(dst); err == nil && closeErr != nil {
		err = &os.PathError{Op: "close", Path: p.join(name), Err: closeErr}
	}
	var source sourceError
	if errors.As(err, &source) {
		if rmErr := unix.Unlinkat(to, name, 0); rmErr != nil {
			return fmt.Errorf("remove %s: %w", p.join(name), rmErr)
		}
	}
	return err
}

func (c *copier) fill(ctx context.Context, dst, src, dir int, name string, st *unix.Stat_t) error {
	made, err := statFD(dst, name)
	if err != nil {
		return err
	}
	t := transfer{
		c: c, dst: dst, src: src, name: name, size: st.Size,
		sparse: st.Size > sparseFrom && st.Blocks*blockSize < st.Size,
	}
	if err := t.data(ctx); err != nil {
		return err
	}
	if err := c.xattrs(dst, src, name); err != nil {
		return err
	}
	if t.size > 0 {
		// A full disk may show only here, and data written later would change the
		// times. NFS writes on close in any case.
		if err := restarted(func() error { return unix.Fsync(dst) }); err != nil {
			return &os.PathError{Op: "fsync", Path: name, Err: err}
		}
	}
	return c.setAttributes(dst, dir, name, &made, st)
}

func (c *copier) symlink(p pair, name string) error {
	from, to := int(p.src.Fd()), int(p.dst.Fd())
	st, err := statAt(from, name)
	if err != nil {
		return sourceError{err}
	}
	target, err := readlinkAt(from, name)
	if errors.Is(err, unix.EINVAL) || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return errChanged
	}
	if err != nil {
		return sourceError{err}
	}
	if err := restarted(func() error { return unix.Symlinkat(target, to, name) }); err != nil {
		return &os.PathError{Op: "symlink", Path: p.join(name), Err: err}
	}
	return setAttributesAt(to, name, &st)
}

// special makes a fifo or a socket anew. Neither has content.
func (c *copier) special(p pair, name string) error {
	st, err := statAt(int(p.src.Fd()), name)
	if err != nil {
		return sourceError{err}
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFIFO && kind != unix.S_IFSOCK {
		return errChanged
	}
	to := int(p.dst.Fd())
	if err := restarted(func() error { return unix.Mknodat(to, name, kind|st.Mode&permBits, 0) }); err != nil {
		return &os.PathError{Op: "mknod", Path: p.join(name), Err: err}
	}
	return setAttributesAt(to, name, &st)
}
