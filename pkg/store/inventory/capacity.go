package inventory

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Capacity returns how many bytes the driver can still write to the export.
//
// Errors: those of share.Cache.
func (i *Inventory) Capacity(ctx context.Context, export volume.Export, mountOptions []string) (int64, error) {
	free, err := session.Result(ctx, i.cfg.Exports.On, i.Target(session.Key{Export: export}, mountOptions), func(_ context.Context, x *session.Session) (int64, error) {
		st, err := statfs(x.Root)
		return int64(st.Bavail) * st.Bsize, err
	})
	if err != nil {
		return 0, fmt.Errorf("capacity of %s: %w", export, err)
	}
	return free, nil
}

func statfs(root *os.Root) (st unix.Statfs_t, err error) {
	err = fsat.WithFD(root, func(fd int) error {
		return os.NewSyscallError("fstatfs", unix.Fstatfs(fd, &st))
	})
	return st, err
}
