package fsat

import (
	"cmp"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Calls that ask the server do so with AT_STATX_FORCE_SYNC; others may be answered from
// the cache of an NFS client.

// Stat returns the attributes of what is open. The name is for the error.
func Stat(fd int, name string) (st unix.Stat_t, err error) {
	err = onPath("stat", name, func() error { return unix.Fstat(fd, &st) })
	return st, err
}

// Lstat returns the attributes of an entry.
func Lstat(dir int, name string) (st unix.Stat_t, err error) {
	err = onPath("lstat", name, func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

// Readlink returns the target of a symlink: an entry, or what is open with O_PATH for
// the empty name.
func Readlink(dir int, name string) (string, error) {
	buf, n := make([]byte, unix.PathMax), 0
	err := onPath("readlink", name, func() (err error) { n, err = unix.Readlinkat(dir, name, buf); return err })
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// statx asks the server about an entry, or about the directory itself for the empty
// name.
func statx(dir int, name string, mask int) (st unix.Statx_t, err error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_STATX_FORCE_SYNC
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err = onPath("statx", cmp.Or(name, "."), func() error { return unix.Statx(dir, name, flags, mask, &st) })
	return st, err
}

// Revalidate asks the server about an open directory, so that the next lookup in it
// finds what is there and not what the client has in its cache.
func Revalidate(dir int) error {
	_, err := statx(dir, "", unix.STATX_MTIME|unix.STATX_CTIME)
	return err
}

// LstatNow is Lstat that asks the server, about the directory and about the entry.
// Only type and identity are set.
func LstatNow(dir int, name string) (unix.Stat_t, error) {
	err := Revalidate(dir)
	var x unix.Statx_t
	if err == nil {
		x, err = statx(dir, name, unix.STATX_TYPE|unix.STATX_INO)
	}
	if err != nil {
		return unix.Stat_t{}, err
	}
	return unix.Stat_t{Dev: unix.Mkdev(x.Dev_major, x.Dev_minor), Ino: x.Ino, Mode: uint32(x.Mode)}, nil
}

// Exists asks the server whether an open directory or file has not been removed.
func Exists(fd int) (bool, error) {
	st, err := statx(fd, "", unix.STATX_NLINK)
	if errors.Is(err, unix.ESTALE) {
		return false, nil
	}
	return err == nil && st.Nlink > 0, err
}

// ChangeTime asks the server when an entry, or what is open for the empty name, was
// last changed, touched or renamed (its ctime). Nobody can set that time.
func ChangeTime(dir int, name string) (time.Time, error) {
	st, err := statx(dir, name, unix.STATX_CTIME)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)), nil
}
