package fsat

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// onPath calls f, again while a signal interrupts it, and adds the operation and the
// name to its error.
func onPath(op, name string, f func() error) error {
	if err := Restart(f); err != nil {
		return &os.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// onLink is onPath for an operation with two names.
func onLink(op, old, name string, f func() error) error {
	if err := Restart(f); err != nil {
		return &os.LinkError{Op: op, Old: old, New: name, Err: err}
	}
	return nil
}

// Mkdir makes a directory.
func Mkdir(dir int, name string, perm uint32) error {
	return onPath("mkdir", name, func() error { return unix.Mkdirat(dir, name, perm) })
}

// Mkfifo makes a fifo.
func Mkfifo(dir int, name string) error {
	return onPath("mkfifo", name, func() error { return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0) })
}

// Link makes a hard link.
func Link(from int, old string, to int, name string) error {
	return onLink("link", old, name, func() error { return unix.Linkat(from, old, to, name, 0) })
}

// Rename moves an entry to another directory. As rename(2) does, it replaces an
// empty directory that is there already.
func Rename(from int, old string, to int, name string) error {
	return onLink("rename", old, name, func() error { return unix.Renameat(from, old, to, name) })
}

// Unlink removes an entry that is not a directory.
func Unlink(dir int, name string) error {
	return onPath("unlink", name, func() error { return unix.Unlinkat(dir, name, 0) })
}

// Rmdir removes an empty directory and, unlike os.Root.Remove, nothing else.
func Rmdir(dir int, name string) error {
	return onPath("rmdir", name, func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
}

// Chmod changes the mode of what is open, with O_PATH as well: fchmod(2) takes no
// such descriptor, and fchmodat2(2) needs Linux 6.6. The name is for the error.
func Chmod(fd int, name string, mode uint32) error {
	return onPath(fmt.Sprintf("chmod %04o", mode), name, func() error {
		return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
	})
}

// SetTimes sets the times of an entry, or of the directory itself for ".".
func SetTimes(dir int, name string, atime, mtime unix.Timespec) error {
	times := []unix.Timespec{atime, mtime}
	return onPath("utimes", name, func() error { return unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW) })
}

// Touch gives an entry the file server's time: a client that does not say which time
// leaves it to the server.
func Touch(dir int, name string) error {
	now := unix.Timespec{Nsec: unix.UTIME_NOW}
	return SetTimes(dir, name, now, now)
}
