package volumes

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Expand notes a larger size of the volume, at least as much as is required. The volume
// itself has no size of its own. That of a predecessor, which has no record, is the
// caller's to remember.
//
// Errors: volume.ErrOutOfRange, volume.ErrInvalid.
func Expand(ctx context.Context, x *session.Session, rec catalog.Record, size SizeRange) (capacity int64, err error) {
	required, err := size.Choose()
	if err != nil {
		return 0, err
	}
	capacity = max(rec.Capacity, required)
	if size.Limit > 0 && capacity > size.Limit {
		return 0, fmt.Errorf("%w: it has %d bytes already, the limit is %d", volume.ErrOutOfRange, capacity, size.Limit)
	}
	if rec.Name == "" || capacity == rec.Capacity {
		return capacity, nil
	}
	rec.Capacity = capacity
	return capacity, Replace(ctx, x, rec)
}

// Modify changes what may be changed of a volume.
//
// Errors: volume.ErrRefused, volume.ErrOwned.
func Modify(ctx context.Context, x *session.Session, id volume.ID, rec catalog.Record, change volume.Mutable) error {
	if change == (volume.Mutable{}) {
		return nil
	}
	if rec.Shared != "" {
		return errShapeless()
	}
	if err := note(ctx, x, id, rec, change); err != nil || change.Mode == 0 {
		return err
	}
	if err := x.Step(ctx, "change mode"); err != nil {
		return err
	}
	return chmod(x.Root, id.SubDir, change.Mode)
}

// Whole notes that the volume's directory has got its place.
func Whole(ctx context.Context, x *session.Session, rec catalog.Record) error {
	if !rec.Pending {
		return nil
	}
	rec.Pending = false
	return Replace(ctx, x, rec)
}

// note writes the change into the volume's record. A volume of a predecessor gets one.
func note(ctx context.Context, x *session.Session, id volume.ID, rec catalog.Record, change volume.Mutable) error {
	isNew := rec.Name == ""
	if isNew {
		if err := x.Records().CheckNotNested(id.SubDir); err != nil {
			return err
		}
		rec = catalog.Record{
			Name: id.Name, ID: id.String(), SubDir: id.SubDir, Adopted: true, OnDelete: id.OnDelete,
			Parameters: volume.Params{Export: id.Export}.Shape(), Created: time.Now().UTC(),
		}
	}
	if change.OnDelete != "" {
		rec.OnDelete = change.OnDelete
	}
	if change.Mode != 0 {
		rec.Mode = change.Mode
	}
	if !isNew {
		return Replace(ctx, x, rec)
	}
	if err := x.Step(ctx, "write record"); err != nil {
		return err
	}
	if err := x.Open(); err != nil {
		return err
	}
	return x.Cat.Create(rec)
}

// Replace replaces the record of a volume.
func Replace(ctx context.Context, x *session.Session, rec catalog.Record) error {
	if err := x.Step(ctx, "replace record"); err != nil {
		return err
	}
	return x.Cat.Replace(rec)
}

func chmod(root *os.Root, subDir string, mode volume.Mode) error {
	p, err := fsat.OpenPlace(root, subDir)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Chmod(mode)
}
