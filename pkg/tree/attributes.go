package tree

import (
	"errors"
	"os"
	"strings"

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

// copied reports whether an extended attribute belongs to the content: user attributes,
// and POSIX ACLs (NFSv3). NFSv4 ACLs are not read: they would cost two more round trips
// for every file, nearly always to return what the mode says.
func copied(attr string) bool {
	return strings.HasPrefix(attr, "user.") || strings.HasPrefix(attr, "system.posix_acl_")
}

// xattrs copies extended attributes between open files. A file system without them, on
// either side, is not an error and is detected once.
func (c *copier) xattrs(dst, src int, name string) error {
	if c.noXattrs.Load() {
		return nil
	}
	list, err := sized(func(b []byte) (int, error) { return unix.Flistxattr(src, b) })
	if err != nil {
		return sourceErr(c.xattrError("listxattr", name, err))
	}
	for attr := range strings.SplitSeq(string(list), "\x00") {
		if !copied(attr) {
			continue
		}
		value, err := sized(func(b []byte) (int, error) { return unix.Fgetxattr(src, attr, b) })
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile, or an ACL equivalent to the mode
		}
		if err != nil {
			return sourceErr(c.xattrError("getxattr "+attr, name, err))
		}
		if err := fsat.Restart(func() error { return unix.Fsetxattr(dst, attr, value, 0) }); err != nil {
			return c.xattrError("setxattr "+attr, name, err)
		}
	}
	return nil
}

func (c *copier) xattrError(op, name string, err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		c.noXattrs.Store(true)
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}

// sized calls get with a growing buffer until it is large enough.
func sized(get func([]byte) (int, error)) ([]byte, error) {
	var small [256]byte
	buf := small[:]
	for {
		n := 0
		err := fsat.Restart(func() (err error) { n, err = get(buf); return err })
		if err == nil {
			return buf[:n], nil
		}
		if !errors.Is(err, unix.ERANGE) || len(buf) > 1<<20 {
			return nil, err
		}
		buf = make([]byte, 8*len(buf))
	}
}
