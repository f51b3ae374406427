package deletion

import (
	"context"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// noteRetained notes for repeated calls that the directory stays. On a full disk the
// volume's ID is enough where it says so too.
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
