package deletion

import (
	"context"
	"fmt"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A predecessor's volume may be in another file system than its share: that of an export
// below it. It is deleted as a volume of that export, whose catalog says whether the
// directory belongs to a live volume, and whose trash it can be renamed to.

// belowPseudoRoot returns where the file system of the volume begins, if it is not that of
// the share and the share has no catalog: none can be created in a pseudo-root.
func (d *Deletion) belowPseudoRoot() (at string, err error) {
	has, err := d.HasCatalog()
	if has || err != nil { // it may have a record of the volume
		return "", err
	}
	return fsat.Boundary(d.Root, d.ID.SubDir)
}

// deleteBelow deletes a volume without a record whose file system begins at a directory
// on the way to it.
func (d *Deletion) deleteBelow(ctx context.Context, at string) error {
	policy, err := d.lastPolicy(ctx)
	if err != nil || policy == volume.OnDeleteRetain {
		return err
	}
	if at == d.ID.SubDir {
		return fmt.Errorf("%w: the directory %s is the root of a file system or an export of its own, which is not deleted; "+
			"delete its content on the server and the PersistentVolume, or unmount it there", volume.ErrUnsupported, d.ID.SubDir)
	}
	if err := d.Records().CheckNotNested(d.ID.SubDir); err != nil {
		return err
	}
	if err := d.Free(d.Key); err != nil {
		return err
	}
	below := *d
	t := session.Target{Key: d.Key.Below(at), MountOptions: d.MountOptions}
	below.ID.Export, below.ID.SubDir = t.Key.Export, t.Key.SubDir
	if err := d.Also(ctx, t, below.Run); err != nil {
		return err
	}
	d.Kick(t)
	return nil
}
