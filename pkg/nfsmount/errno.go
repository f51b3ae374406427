package nfsmount

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// classify maps an error of mount(2) to its meaning for NFS.
func classify(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	var kind error
	switch errno {
	case unix.ENOENT, unix.ESTALE, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG:
		kind = volume.ErrShareNotFound
	case unix.EACCES, unix.EPERM, unix.EROFS, unix.EKEYEXPIRED, unix.ENOKEY:
		kind = volume.ErrAccessDenied
	case unix.ECONNREFUSED, unix.ECONNRESET, unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.EHOSTDOWN,
		unix.ENETUNREACH, unix.EPIPE, unix.ENOTCONN, unix.EAGAIN:
		kind = volume.ErrUnreachable
	case unix.EINVAL, unix.EPROTONOSUPPORT, unix.EPFNOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.EPROTO:
		kind = volume.ErrMountOptions
	case unix.ENODEV:
		return fmt.Errorf("%w: this node's kernel has no NFS client, load its module nfsv4 or nfs: %w", volume.ErrUnsupported, err)
	default:
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}
