package tree

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

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
		n, err := restart(func() (int, error) { return get(buf) })
		if err == nil {
			return buf[:n], nil
		}
		if !errors.Is(err, unix.ERANGE) || len(buf) > 1<<20 {
			return nil, err
		}
		buf = make([]byte, 8*len(buf))
	}
}
