package fsat

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Mkdir makes a directory.
func Mkdir(dir int, name string, perm uint32) error {
	if err := Restart(func() error { return unix.Mkdirat(dir, name, perm) }); err != nil {
		return &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return nil
}

// Mkfifo makes a fifo.
func Mkfifo(dir int, name string) error {
	if err := Restart(func() error { return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0) }); err != nil {
		return &os.PathError{Op: "mkfifo", Path: name, Err: err}
	}
	return nil
}

// Link makes a hard link.
func Link(from int, old string, to int, name string) error {
	if err := Restart(func() error { return unix.Linkat(from, old, to, name, 0) }); err != nil {
		return &os.LinkError{Op: "link", Old: old, New: name, Err: err}
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

// Chmod changes the mode of what is open, with O_PATH as well: fchmod(2) takes no
// such descriptor, and fchmodat2(2) needs Linux 6.6. The name is for the error.
func Chmod(fd int, name string, mode uint32) error {
	if err := Restart(func() error { return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode) }); err != nil {
		return &os.PathError{Op: fmt.Sprintf("chmod %04o", mode), Path: name, Err: err}
	}
	return nil
}

// SetTimes sets the times of an entry, or of the directory itself for ".".
func SetTimes(dir int, name string, atime, mtime unix.Timespec) error {
	times := []unix.Timespec{atime, mtime}
	err := Restart(func() error { return unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return &os.PathError{Op: "utimes", Path: name, Err: err}
	}
	return nil
}

// Touch gives an entry the file server's time: a client that does not say which time
// leaves it to the server.
func Touch(dir int, name string) error {
	now := unix.Timespec{Nsec: unix.UTIME_NOW}
	return SetTimes(dir, name, now, now)
}
