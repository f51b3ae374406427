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

func openDirAt(dir int, name string) (*os.File, error) {
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
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
