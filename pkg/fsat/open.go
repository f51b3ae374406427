// Package fsat has the calls of the openat(2) family that follow no symlink: each
// takes an open directory and one name in it, so that nothing put in an entry's
// place can lead elsewhere. Errors are those of package os. Use os.Root where a
// path may have symlinks, or where a round trip more does not matter.
package fsat

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Restart calls f again while a signal interrupts it. NFS waits for its server
// uninterrupted but for kill -9; other file systems may not.
func Restart(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// IsGone reports whether the error says that an entry has been removed: NFS returns
// ESTALE for what was removed while it was open.
func IsGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESTALE) }

// Open opens an entry of a directory. O_NOFOLLOW and O_CLOEXEC are always set.
func Open(dir int, name string, flags int, perm uint32) (fd int, err error) {
	err = onPath("open", name, func() (err error) { fd, err = open(dir, name, flags, perm); return err })
	return fd, err
}

func open(dir int, name string, flags int, perm uint32) (fd int, err error) {
	return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
}

// OpenBeneath opens a path below a directory one component after the other: an NFS
// client asks the server about a directory that it opens, but passes one that it has
// in its cache, even if another client has since replaced it.
func OpenBeneath(dir int, name string, flags int) (fd int, err error) {
	if !filepath.IsLocal(name) {
		return -1, &os.PathError{Op: "open", Path: name, Err: unix.EXDEV}
	}
	fd = dir
	names := strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
	for i, step := range names {
		parent, how := fd, unix.O_RDONLY|unix.O_DIRECTORY
		if i == len(names)-1 {
			how = flags
		}
		err = Restart(func() (err error) { fd, err = open(parent, step, how, 0); return err })
		if parent != dir {
			err = errors.Join(err, unix.Close(parent))
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
	return fd, nil
}

// ReadFile reads a whole file, by its path below a directory, and asks the server that it
// is not one that was removed or replaced. An NFSv4 client opens a file that it knows by
// its handle, even after it was unlinked; and while it has a delegation, not even the
// directory's change time makes it look again. No server recalls a delegation from the
// client that makes the change, even if it does so through another mount.
func ReadFile(dir int, name string) ([]byte, error) {
	for range MaxLostRaces {
		b, unlinked, err := readFile(dir, name)
		if err != nil || !unlinked {
			return b, err
		}
		if err := forgetUnlinked(dir, name); err != nil {
			return nil, err
		}
	}
	return nil, &os.PathError{Op: "read", Path: name, Err: unix.ESTALE}
}

func readFile(dir int, name string) (b []byte, unlinked bool, err error) {
	// O_NONBLOCK: a fifo in the file's place must not make it wait for a writer.
	fd, err := OpenBeneath(dir, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, false, err
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	if there, err := Exists(fd); err != nil || !there {
		return nil, !there, err
	}
	b = make([]byte, 0, 4096)
	for {
		n := 0
		err := onPath("read", name, func() (err error) { n, err = unix.Read(fd, b[len(b):cap(b)]); return err })
		if err != nil {
			return nil, false, err
		}
		b = b[:len(b)+n]
		if len(b) < cap(b) {
			return b, false, nil // a short read: the end
		}
		b = append(b, 0)[:len(b)]
	}
}

// forgetUnlinked makes an NFS client look a file up again. Opening it for writing returns
// a delegation for reading. If that fails, so does the caller's next attempt.
func forgetUnlinked(dir int, name string) error {
	if fd, err := OpenBeneath(dir, name, unix.O_RDWR|unix.O_NONBLOCK); err == nil {
		if err := unix.Close(fd); err != nil {
			return &os.PathError{Op: "close", Path: name, Err: err}
		}
	}
	return Revalidate(dir)
}

// WithFD runs do with a descriptor of the directory.
func WithFD(dir *os.Root, do func(fd int) error) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(do(int(f.Fd())), f.Close())
}

// OpenRoot returns a descriptor of the directory, which the caller closes.
func OpenRoot(root *os.Root) (fd int, err error) {
	err = WithFD(root, func(dir int) error {
		fd, err = Duplicate(dir)
		return err
	})
	return fd, err
}

// Duplicate returns another descriptor of what is open, which the caller closes.
func Duplicate(fd int) (int, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return dup, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
}
