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

// Expand raises the capacity in the volume's record to the required size; nothing else
// has a size. A predecessor's volume has no record: only the caller keeps its capacity.
//
// Errors: volume.ErrOutOfRange, volume.ErrInvalid.
func Expand(ctx context.Context, x *session.Session, rec catalog.Record, size SizeRange) (capacity int64, err error) {
	required, err := size.Choose()
	if err != nil {
		return 0, err
	}
	capacity = max(rec.Capacity, required)
	if size.Limit > 0 && capacity > size.Limit {
		return 0, fmt.Errorf("%w: the volume already has %d bytes, the limit is %d", volume.ErrOutOfRange, capacity, size.Limit)
	}
	if rec.Name == "" || capacity == rec.Capacity {
		return capacity, nil
	}
	rec.Capacity = capacity
	return capacity, Replace(ctx, x, rec)
}

// Modify changes the mutable parameters of a volume.
//
// Errors: volume.ErrRefused, volume.ErrOwned.
func Modify(ctx context.Context, x *session.Session, id volume.ID, rec catalog.Record, change volume.Mutable) error {
	if change == (volume.Mutable{}) {
		return nil
	}
	if rec.Shared != "" {
		return sharedAttributesError()
	}
	if err := updateRecord(ctx, x, id, rec, change); err != nil || change.Mode == 0 {
		return err
	}
	if err := x.Step(ctx, "change mode"); err != nil {
		return err
	}
	return chmod(x.Root, id.SubDir, change.Mode)
}

// Whole clears Pending in the record once the volume's directory is in place.
func Whole(ctx context.Context, x *session.Session, rec catalog.Record) error {
	if !rec.Pending {
		return nil
	}
	rec.Pending = false
	return Replace(ctx, x, rec)
}

// updateRecord writes the change into the volume's record, or into a new record for a
// predecessor's volume.
func updateRecord(ctx context.Context, x *session.Session, id volume.ID, rec catalog.Record, change volume.Mutable) error {
	isNew := rec.Name == ""
	if isNew {
		if err := x.Records().CheckNotNested(id.SubDir); err != nil {
			return err
		}
		if err := x.CheckFileSystem(id.SubDir); err != nil {
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
