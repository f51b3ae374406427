package tree

import (
	"archive/tar"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// The calls below take one name in an open directory and follow no symlink, so
// that nothing put in an entry's place can lead out of the tree. What a name
// comes from is readdir(3), which gives no slashes.

// restarted calls f again while a signal interrupts it. NFS waits for its
// server uninterrupted but for kill -9; other file systems may not.
func restarted(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func openAt(dir int, name string, flags int, perm uint32) (fd int, err error) {
	err = restarted(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
		return err
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// openRoot returns a descriptor of the directory, which the caller closes.
func openRoot(root *os.Root) (fd int, err error) {
	f, err := root.Open(".")
	if err != nil {
		return -1, err
	}
	defer f.Close() //nolint:errcheck // only read
	return duplicate(f.Fd())
}

// duplicate returns another descriptor of what is open, which the caller closes.
func duplicate(fd uintptr) (int, error) {
	dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
	}
	return dup, nil
}

func statFD(fd int, name string) (st unix.Stat_t, err error) {
	err = restarted(func() error { return unix.Fstat(fd, &st) })
	if err != nil {
		return st, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return st, nil
}

func statAt(dir int, name string) (st unix.Stat_t, err error) {
	err = restarted(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return st, &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	return st, nil
}

// statNow is statAt by what the server says now, and not by what the client remembers
// of the directory or the entry. Only type and identity are set.
func statNow(dir int, name string) (st unix.Stat_t, err error) {
	const flags = unix.AT_STATX_FORCE_SYNC | unix.AT_SYMLINK_NOFOLLOW
	var x unix.Statx_t
	err = restarted(func() error {
		return unix.Statx(dir, "", flags|unix.AT_EMPTY_PATH, unix.STATX_CTIME|unix.STATX_MTIME, &x)
	})
	if err == nil {
		err = restarted(func() error { return unix.Statx(dir, name, flags, unix.STATX_TYPE|unix.STATX_INO, &x) })
	}
	if err != nil {
		return st, &os.PathError{Op: "statx", Path: name, Err: err}
	}
	return unix.Stat_t{Dev: unix.Mkdev(x.Dev_major, x.Dev_minor), Ino: x.Ino, Mode: uint32(x.Mode)}, nil
}

// alive tells whether an open directory has not been removed.
func alive(dir int) bool {
	const flags = unix.AT_STATX_FORCE_SYNC | unix.AT_EMPTY_PATH
	var x unix.Statx_t
	err := restarted(func() error { return unix.Statx(dir, "", flags, unix.STATX_NLINK, &x) })
	return err == nil && x.Nlink > 0
}

func readlinkAt(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	var n int
	err := restarted(func() (err error) {
		n, err = unix.Readlinkat(dir, name, buf)
		return err
	})
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(buf[:n]), nil
}

func linkAt(from int, old string, to int, name string) error {
	err := restarted(func() error { return unix.Linkat(from, old, to, name, 0) })
	if err != nil {
		return &os.LinkError{Op: "link", Old: old, New: name, Err: err}
	}
	return nil
}

func mkfifoAt(dir int, name string) error {
	err := restarted(func() error { return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0) })
	if err != nil {
		return &os.PathError{Op: "mkfifo", Path: name, Err: err}
	}
	return nil
}

// headerStat is what a tar member says of itself.
func headerStat(h *tar.Header) *unix.Stat_t {
	kind := uint32(0)
	if h.Typeflag == tar.TypeSymlink {
		kind = unix.S_IFLNK
	}
	return &unix.Stat_t{
		Mode: kind | uint32(h.Mode)&(permBits|specialBits), Uid: uint32(h.Uid), Gid: uint32(h.Gid),
		Atim: unix.NsecToTimespec(accessTime(h).UnixNano()), Mtim: unix.NsecToTimespec(h.ModTime.UnixNano()),
	}
}
