package deletion

import (
	"context"
	"errors"
	"io/fs"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// withoutRecord deletes a volume that was made by a predecessor, or is gone.
func (d *Deletion) withoutRecord(ctx context.Context) error {
	next, err := d.Cat.Reuse(d.id.SubDir)
	if err == nil {
		klog.FromContext(ctx).Info("Nothing to delete: the directory is being handed to the next volume of its claim", logkeys.VolumeID, d.id.String(), logkeys.NextVolumeID, next.ID)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there, _, err := fsat.Directory(d.Root, d.id.SubDir) // a file or a symlink is no volume
	if err != nil {
		return err
	}
	policy, err := d.lastPolicy(ctx)
	if err != nil {
		return err
	}
	if there {
		err = d.legacy(ctx, policy)
	} else {
		err = d.finish(ctx, policy)
	}
	if err != nil {
		return err
	}
	// A process may have been killed after it removed the record, and before the
	// directory that it was in.
	return d.Cat.Prune(d.id.SubDir)
}

// legacy ends the volume of a directory that no record says anything of.
func (d *Deletion) legacy(ctx context.Context, policy volume.OnDelete) error {
	if err := d.spareOthers(policy); err != nil {
		return err
	}
	_, err := d.dispose(ctx, policy)
	return err
}

// spareOthers refuses a directory without a record that lies around or within a volume
// that has one: it must not take that with it.
func (d *Deletion) spareOthers(policy volume.OnDelete) error {
	if err := d.Records().CheckNotNested(d.id.SubDir); err != nil {
		return err
	}
	return d.spareShares(policy)
}

// spareShares refuses a directory that the driver has not made and that is a share, or
// lies in one, unless it stays as it is.
func (d *Deletion) spareShares(policy volume.OnDelete) error {
	switch {
	case policy == volume.OnDeleteRetain:
		return nil
	case d.Cat == nil:
		return catalog.CheckNotNestedExport(d.Root, d.id.SubDir)
	}
	return d.Cat.CheckNotNestedExport(d.id.SubDir)
}

// finish ends what a process was killed in, which may have been nothing.
func (d *Deletion) finish(ctx context.Context, policy volume.OnDelete) error {
	if policy == volume.OnDeleteArchive {
		return d.finishArchive(ctx)
	}
	return d.finishDiscard()
}

// lastPolicy is that of a volume which has no record, or has none any more.
func (d *Deletion) lastPolicy(ctx context.Context) (volume.OnDelete, error) {
	policy := d.cfg.Volumes.Policy(catalog.Record{}, d.id)
	if d.Cat == nil || policy == volume.OnDeleteRetain {
		return policy, nil
	}
	by, err := d.Cat.Retained(d.id.SubDir, d.id.Name)
	if by != "" {
		klog.FromContext(ctx).Info("Nothing to delete: the volume is gone and its directory was retained", logkeys.VolumeID, d.id.String(), logkeys.RetainedBy, by)
		policy = volume.OnDeleteRetain
	}
	return policy, err
}
