package deletion

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// deleteUnrecorded deletes a volume without a record: created by a predecessor, or gone.
func (d *Deletion) deleteUnrecorded(ctx context.Context) error {
	next, err := d.Cat.Reuse(d.ID.SubDir)
	if err == nil {
		klog.FromContext(ctx).Info("Nothing to delete: the directory is being handed to the next volume of its claim", logkeys.VolumeID, d.ID.String(), logkeys.NextVolumeID, next.ID)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	at, err := fsat.Boundary(d.Root, d.ID.SubDir)
	if err != nil {
		return err
	}
	if at != "" {
		return d.deleteBelow(ctx, at)
	}
	exists, _, err := fsat.Directory(d.Root, d.ID.SubDir) // a file or a symlink is no volume
	if err != nil {
		return err
	}
	policy, err := d.lastPolicy(ctx)
	if err != nil {
		return err
	}
	switch {
	case exists:
		if err = d.checkNotNested(policy); err == nil {
			_, err = d.applyPolicy(ctx, policy)
		}
	case policy == volume.OnDeleteArchive: // of a delete that was killed, if there was one
		err = d.finishArchive(ctx)
	default:
		if err = d.finishDiscard(); err == nil {
			err = d.finishPrune()
		}
	}
	if err != nil {
		return err
	}
	// A killed process may have left the record's directory.
	return d.Cat.Prune(d.ID.SubDir)
}

// finishPrune removes the empty parents that a killed call has left, unless they are, or
// lead to, a live volume.
func (d *Deletion) finishPrune() error {
	if path.Dir(d.ID.SubDir) == "." {
		return nil
	}
	err := d.Cat.CheckNotNested(d.ID.SubDir)
	if errors.Is(err, volume.ErrOwned) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsat.Prune(d.Root, d.ID.SubDir)
}

// checkNotNested returns volume.ErrOwned for a directory without a record that contains,
// or lies in, a volume with one.
func (d *Deletion) checkNotNested(policy volume.OnDelete) error {
	if err := d.Records().CheckNotNested(d.ID.SubDir); err != nil {
		return err
	}
	return d.checkNotNestedExport(policy)
}

// checkNotNestedExport refuses a directory that the driver did not create and that is, or
// lies in, another export, unless it is retained.
func (d *Deletion) checkNotNestedExport(policy volume.OnDelete) error {
	switch {
	case policy == volume.OnDeleteRetain:
		return nil
	case d.Cat == nil:
		return catalog.CheckNotNestedExport(d.Root, d.ID.SubDir)
	}
	return d.Cat.CheckNotNestedExport(d.ID.SubDir)
}

// lastPolicy is the policy of a volume without a record: retain, if it was retained.
func (d *Deletion) lastPolicy(ctx context.Context) (volume.OnDelete, error) {
	policy := d.Volumes.Policy(catalog.Record{}, d.ID)
	if d.Cat == nil || policy == volume.OnDeleteRetain {
		return policy, nil
	}
	retainedBy, err := d.Cat.Retained(d.ID.SubDir, d.ID.Name)
	if retainedBy != "" {
		klog.FromContext(ctx).Info("Nothing to delete: the volume is gone and its directory was retained", logkeys.VolumeID, d.ID.String(), logkeys.RetainedBy, retainedBy)
		policy = volume.OnDeleteRetain
	}
	return policy, err
}
