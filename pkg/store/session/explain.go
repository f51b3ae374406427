package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// remountStale turns ESTALE into volume.ErrStale. It invalidates the mount if the export or
// an open directory of it was replaced on the server, so that its next user remounts it.
func (s *Session) remountStale(err error) error {
	if !errors.Is(err, unix.ESTALE) {
		return err
	}
	cat, ok := s.handle.Kept().(*catalog.Catalog)
	if fsat.RevalidateRoot(s.Root) != nil || ok && cat.Check() != nil || ok && cat.Revalidate() != nil {
		s.handle.Invalidate()
	}
	return fmt.Errorf("%w: %w", volume.ErrStale, err)
}

// explain adds the export's owner and mode, and the remedy, to a permission error.
func explain(root *os.Root, err error) error {
	if !errors.Is(err, fs.ErrPermission) || errors.Is(err, volume.ErrRefused) || errors.Is(err, volume.ErrInvalid) {
		return err
	}
	info, statErr := root.Stat(".")
	if statErr != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return err
	}
	return fmt.Errorf("%w: the export's directory belongs to uid %d, gid %d and has mode %s; export it with no_root_squash, "+
		"or change its owner to the user that root_squash or all_squash maps root to (anonuid, anongid): %w",
		volume.ErrRefused, st.Uid, st.Gid, volume.Mode(st.Mode&0o7777), err)
}
