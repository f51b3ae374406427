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

// remountStale makes the next use of the share mount it anew if this one found the
// mount stale, as after the export was made anew on the server, or what is open on it.
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

// explain adds to a permission that is missing what the export is like, since
// the remedy is there.
func explain(root *os.Root, err error) error {
	if !errors.Is(err, fs.ErrPermission) || errors.Is(err, volume.ErrRefused) {
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
		"or give it to the user that root_squash or all_squash makes of root (anonuid, anongid): %w",
		volume.ErrRefused, st.Uid, st.Gid, volume.Mode(st.Mode&0o7777), err)
}
