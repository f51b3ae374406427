package deletion

import (
	"context"
	"errors"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/legacy"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Tarball moves the directory of a csi-driver-nfs snapshot to the trash if it contains
// the tarball and belongs to no volume.
func Tarball(ctx context.Context, x *session.Session, id volume.SnapshotID) error {
	d := &Deletion{
		Session: x.On(session.Key{Export: id.Export, SubDir: id.Name}),
		id:      volume.ID{Export: id.Export, SubDir: id.Name},
	}
	t, err := legacy.Open(x, id)
	if errors.Is(err, volume.ErrSnapshotNotFound) {
		return d.finishDiscard()
	}
	if err != nil {
		return err
	}
	t.Close()
	q, err := d.quarantineOwned(ctx, catalog.QuarantineKind(id.Name))
	if err != nil || !q.owned || q.name == "" {
		return err
	}
	return d.discard(ctx, q.name)
}
