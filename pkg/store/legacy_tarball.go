package store

import (
	"context"
	"errors"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/legacy"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// deleteTarball moves the directory of a csi-driver-nfs snapshot to the trash, if it
// has the tarball and belongs to no volume.
func (s *Store) deleteTarball(ctx context.Context, x *session.Session, id volume.SnapshotID) error {
	d := &deletion{Store: s, Session: x.On(session.Key{Export: id.Export, SubDir: id.Name}), id: volume.ID{Export: id.Export, SubDir: id.Name}}
	t, err := legacy.Open(x, id)
	if errors.Is(err, volume.ErrSnapshotNotFound) {
		return d.finishTaken()
	}
	if err != nil {
		return err
	}
	t.Close()
	taken, err := d.takeMine(ctx, catalog.QuarantineKind(d.Key.SubDir))
	if err != nil || !taken.mine || taken.name == "" {
		return err
	}
	return d.discardTaken(ctx, taken.name)
}
