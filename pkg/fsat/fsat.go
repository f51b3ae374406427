// Package fsat has the calls of the openat(2) family that follow no symlink: each
// takes an open directory and one name in it, so that nothing put in an entry's
// place can lead elsewhere. Errors are those of package os. Use os.Root where a
// path may have symlinks, or where a round trip more does not matter.
package fsat

import (
	"errors"
	"fmt"
	"os"

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

// Open opens an entry of a directory. O_NOFOLLOW and O_CLOEXEC are always set.
func Open(dir int, name string, flags int, perm uint32) (fd int, err error) {
	err = Restart(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
		return err
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// Mkdir makes a directory.
func Mkdir(dir int, name string, perm uint32) error {
	if err := Restart(func() error { return unix.Mkdirat(dir, name, perm) }); err != nil {
		return &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return nil
}

// Rename moves an entry to another directory. As rename(2) does, it replaces an
// empty directory that is there already.
func Rename(from int, old string, to int, name string) error {
	if err := Restart(func() error { return unix.Renameat(from, old, to, name) }); err != nil {
		return &os.LinkError{Op: "rename", Old: old, New: name, Err: err}
	}
	return nil
}

// Unlink removes an entry that is not a directory.
func Unlink(dir int, name string) error {
	if err := Restart(func() error { return unix.Unlinkat(dir, name, 0) }); err != nil {
		return &os.PathError{Op: "unlink", Path: name, Err: err}
	}
	return nil
}

// Rmdir removes an empty directory and, unlike os.Root.Remove, nothing else.
func Rmdir(dir int, name string) error {
	if err := Restart(func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) }); err != nil {
		return &os.PathError{Op: "rmdir", Path: name, Err: err}
	}
	return nil
}

// Stat returns the attributes of what is open. The name is for the error.
func Stat(fd int, name string) (st unix.Stat_t, err error) {
	if err = Restart(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return st, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return st, nil
}

// Lstat returns the attributes of an entry.
func Lstat(dir int, name string) (st unix.Stat_t, err error) {
	if err = Restart(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return st, &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	return st, nil
}

// Chmod changes the mode of what is open, with O_PATH as well: fchmod(2) takes no
// such descriptor, and fchmodat2(2) needs Linux 6.6. The name is for the error.
func Chmod(fd int, name string, mode uint32) error {
	if err := Restart(func() error { return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode) }); err != nil {
		return &os.PathError{Op: fmt.Sprintf("chmod %04o", mode), Path: name, Err: err}
	}
	return nil
}

// Revalidate makes the kernel ask the server about an open directory, so that what is
// looked up in it next is what is there, and not what an NFS client remembers.
func Revalidate(dir int) error {
	var st unix.Statx_t
	const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_FORCE_SYNC
	if err := Restart(func() error { return unix.Statx(dir, "", flags, unix.STATX_MTIME|unix.STATX_CTIME, &st) }); err != nil {
		return &os.PathError{Op: "statx", Path: ".", Err: err}
	}
	return nil
}

// Exists asks the server whether an open directory has not been removed.
func Exists(dir int) (bool, error) {
	var st unix.Statx_t
	const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_FORCE_SYNC
	err := Restart(func() error { return unix.Statx(dir, "", flags, unix.STATX_NLINK, &st) })
	if errors.Is(err, unix.ESTALE) {
		return false, nil
	}
	return err == nil && st.Nlink > 0, err
}
