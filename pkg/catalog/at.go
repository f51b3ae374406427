package catalog

import (
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The calls below are those of os.Root with fewer round trips: they work from a
// directory that is open already, and take a path below it, or one name in it,
// without following a symlink.

func restarted(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openBeneath opens a path whose every component is a real directory. In one
// call, with which the kernel looks all of them up again when the server says
// that one is stale.
func openBeneath(dir int, name string, flags int, perm uint32) (fd int, err error) {
	how := unix.OpenHow{
		Flags: uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC), Mode: uint64(perm),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	err = restarted(func() error {
		fd, err = unix.Openat2(dir, name, &how)
		return err
	})
	// Linux before 5.6, or a seccomp filter that is older.
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		fd, err = openSteps(dir, name, flags, perm)
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// openSteps is openBeneath one component after the other.
func openSteps(dir int, name string, flags int, perm uint32) (fd int, err error) {
	step := func(at int, name string, flags int) (fd int, err error) {
		err = restarted(func() error {
			fd, err = unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
			return err
		})
		return fd, err
	}
	if !filepath.IsLocal(name) {
		return -1, unix.EXDEV // as openat2(2) has it
	}
	at := dir
	parents, last := path.Split(name)
	for parent := range strings.FieldsFuncSeq(parents, func(r rune) bool { return r == '/' }) {
		next, err := step(at, parent, unix.O_RDONLY|unix.O_DIRECTORY)
		if at != dir {
			err = errors.Join(err, unix.Close(at))
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	fd, err = step(at, last, flags)
	if at != dir {
		err = errors.Join(err, unix.Close(at))
	}
	return fd, err
}

func mkdirAt(dir int, name string, perm uint32) error {
	if err := restarted(func() error { return unix.Mkdirat(dir, name, perm) }); err != nil {
		return &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return nil
}

func renameAt(from int, old string, to int, name string) error {
	if err := restarted(func() error { return unix.Renameat(from, old, to, name) }); err != nil {
		return &os.LinkError{Op: "rename", Old: old, New: name, Err: err}
	}
	return nil
}

func unlinkAt(dir int, name string, flags int) error {
	if err := restarted(func() error { return unix.Unlinkat(dir, name, flags) }); err != nil {
		return &os.PathError{Op: "unlink", Path: name, Err: err}
	}
	return nil
}

// readAt reads a whole file.
func readAt(dir int, name string) ([]byte, error) {
	// Without waiting for a writer, should somebody have put a fifo there.
	fd, err := openBeneath(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	b := make([]byte, 0, 4096)
	for {
		n := 0
		err := restarted(func() (err error) { n, err = unix.Read(fd, b[len(b):cap(b)]); return err })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: name, Err: err}
		}
		b = b[:len(b)+n]
		if len(b) < cap(b) {
			return b, nil // less than asked for: the end
		}
		b = append(b, 0)[:len(b)]
	}
}

// writeAt makes a file and writes it through to the server's disk. It is not for
// a name that somebody else could be using: O_EXCL is one more round trip.
func writeAt(dir int, name string, b []byte) error {
	fd, err := openBeneath(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_DSYNC, recordMode)
	if err != nil {
		return err
	}
	n := 0
	// A full disk may show only when the data reaches the server.
	err = restarted(func() (err error) { n, err = unix.Write(fd, b); return err })
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}
