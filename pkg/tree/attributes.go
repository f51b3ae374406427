package tree

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

const (
	permBits    = 0o777
	specialBits = unix.S_ISUID | unix.S_ISGID | unix.S_ISVTX
)

// setAttributes sets the attributes of a new entry, open as fd, to those of the source.
// made has its attributes so far: each call is a round trip, so only the necessary
// ones are made. Times come last, when nothing changes the entry any more.
func setAttributes(fd, dir int, name string, made, want *unix.Stat_t) error {
	owned := made.Uid == want.Uid && made.Gid == want.Gid
	if !owned {
		if err := fsat.Restart(func() error { return unix.Fchown(fd, int(want.Uid), int(want.Gid)) }); err != nil {
			return &os.PathError{Op: "chown", Path: name, Err: err}
		}
	}
	mode := want.Mode & (permBits | specialBits)
	if made.Mode&(permBits|specialBits) != mode || !owned && mode&specialBits != 0 {
		if err := fsat.Restart(func() error { return unix.Fchmod(fd, mode) }); err != nil {
			return &os.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	return fsat.SetTimes(dir, name, want.Atim, want.Mtim)
}

// setAttributesAt is setAttributes for entries that cannot be opened: symlinks, which
// have no mode of their own, fifos and sockets.
func setAttributesAt(dir int, name string, want *unix.Stat_t) error {
	made, err := fsat.Lstat(dir, name)
	if err != nil {
		return err
	}
	if made.Uid != want.Uid || made.Gid != want.Gid {
		err := fsat.Restart(func() error {
			return unix.Fchownat(dir, name, int(want.Uid), int(want.Gid), unix.AT_SYMLINK_NOFOLLOW)
		})
		if err != nil {
			return &os.PathError{Op: "lchown", Path: name, Err: err}
		}
	}
	if mode := want.Mode & (permBits | specialBits); want.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := fsat.Restart(func() error { return unix.Fchmodat(dir, name, mode, 0) }); err != nil {
			return &os.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	return fsat.SetTimes(dir, name, want.Atim, want.Mtim)
}
