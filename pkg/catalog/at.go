package catalog

import (
	"errors"
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

// OpenBeneath opens a path whose every component is a real directory, one after
// the other: the client asks the server about a directory that is opened. On one
// that is only passed it relies, by the cache, also where another controller has
// put a new one in its place.
func OpenBeneath(dir int, name string, flags int) (fd int, err error) {
	if !filepath.IsLocal(name) {
		return -1, &os.PathError{Op: "open", Path: name, Err: unix.EXDEV}
	}
	at := dir
	parents, last := path.Split(name)
	for parent := range strings.FieldsFuncSeq(parents, func(r rune) bool { return r == '/' }) {
		next, err := openAt(at, parent, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if at != dir {
			err = errors.Join(err, unix.Close(at))
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: name, Err: err}
		}
		at = next
	}
	fd, err = openAt(at, last, flags, 0)
	if at != dir {
		err = errors.Join(err, unix.Close(at))
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

func openAt(dir int, name string, flags int, perm uint32) (fd int, err error) {
	err = restarted(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
		return err
	})
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
	fd, err := OpenBeneath(dir, name, unix.O_RDONLY|unix.O_NONBLOCK)
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

// stillThere asks the server whether a directory that is open has not been removed.
func stillThere(dir int) (bool, error) {
	var st unix.Statx_t
	err := restarted(func() error {
		return unix.Statx(dir, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_NLINK, &st)
	})
	if errors.Is(err, unix.ESTALE) {
		return false, nil
	}
	return err == nil && st.Nlink > 0, err
}
