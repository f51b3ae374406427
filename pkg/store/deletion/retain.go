package deletion

import (
	"context"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// noteRetained notes, for repeated calls, that the directory is retained. A full disk is
// no error if the volume ID says so too.
func (d *Deletion) noteRetained(ctx context.Context, rec catalog.Record) error {
	err := d.Step(ctx, "note that it is retained")
	if err == nil {
		err = d.Cat.NoteRetained(rec)
	}
	if fsat.IsFull(err) && d.cfg.Volumes.Policy(catalog.Record{}, d.id) == volume.OnDeleteRetain {
		return nil
	}
	return err
}
