package deletion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/legacy"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Snapshot moves a snapshot to the trash. One that is gone is no error.
//
// Errors: volume.ErrInGroup.
func Snapshot(ctx context.Context, x *session.Session, id volume.SnapshotID) error {
	rec, err := x.Cat.ReadSnapshot(catalog.SnapshotPath(id))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := x.Cat.EndStagings(x.Key.SubDir, ""); err != nil {
			return err
		}
		return tarball(ctx, x, id)
	case err != nil:
		return err
	case rec.ID != id.String():
		klog.FromContext(ctx).Info("Nothing to delete: the snapshot is gone and another one has its name", logkeys.SnapshotID, id.String(), logkeys.Owner, rec.ID)
		return nil
	case id.Group != "":
		return fmt.Errorf("%w: %s", volume.ErrInGroup, id.GroupID())
	}
	return discardSnapshots(ctx, x, "move snapshot to trash", catalog.SnapshotPath(id))
}

// Group moves a group snapshot with its members to the trash. One that is gone is no
// error. free returns volume.ErrInUse while a member is the source of a copy.
//
// Errors: volume.ErrInvalid when the members are not those expected.
func Group(ctx context.Context, x *session.Session, id volume.GroupID, expected []string, free func(session.Key) error) error {
	rec, err := x.Cat.ReadGroup(id.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return x.Cat.EndStagings(x.Key.SubDir, "")
	case err != nil:
		return err
	case rec.ID != id.String():
		klog.FromContext(ctx).Info("Nothing to delete: the group snapshot is gone and another one has its name", logkeys.GroupSnapshotID, id.String(), logkeys.Owner, rec.ID)
		return nil
	}
	if err := rec.CheckMembers(expected); err != nil {
		return err
	}
	for _, m := range rec.Members {
		member, err := volume.ParseSnapshotID(m.ID)
		if err != nil {
			return fmt.Errorf("record of group snapshot %s: %w", rec.Name, err)
		}
		if err := free(session.SnapshotKey(member)); err != nil {
			return err
		}
	}
	return discardSnapshots(ctx, x, "move group to trash", catalog.GroupPath(id.Name))
}

func discardSnapshots(ctx context.Context, x *session.Session, step, dir string) error {
	if err := x.Step(ctx, step); err != nil {
		return err
	}
	if err := x.Cat.Discard(dir); err != nil {
		return err
	}
	return x.Step(ctx, "answer")
}

// tarball moves the directory of a csi-driver-nfs snapshot to the trash if it contains
// the tarball and belongs to no volume.
func tarball(ctx context.Context, x *session.Session, id volume.SnapshotID) error {
	d := &Deletion{
		Session: x.On(session.Key{Export: id.Export, SubDir: id.Name}),
		ID:      volume.ID{Export: id.Export, SubDir: id.Name},
	}
	t, err := legacy.Open(x, id)
	if errors.Is(err, volume.ErrSnapshotNotFound) {
		return d.finishDiscard()
	}
	if err != nil {
		return err
	}
	t.Close()
	name, owned, err := d.quarantineOwned(ctx, catalog.DeletedKind)
	if err != nil || !owned || name == "" {
		return err
	}
	return d.discard(ctx, name)
}
