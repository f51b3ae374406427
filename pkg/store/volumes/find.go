package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Find returns the record of an existing volume. The record is empty if a predecessor
// created the volume.
//
// Errors: volume.ErrNotFound.
func Find(x *session.Session, id volume.ID) (catalog.Record, error) {
	rec, err := x.Records().Read(id.SubDir)
	if err == nil && rec.Shared == catalog.SharedDirectory {
		rec, err = sharedRecord(x.Records(), id)
	}
	if err == nil {
		owner, err := volume.ParseID(rec.ID)
		if err == nil && (owner.Name != id.Name || !rec.IsVolume()) {
			err = fmt.Errorf("%w: its directory belongs to %s", volume.ErrNotFound, rec.ID)
		}
		if err != nil {
			return rec, err
		}
		pending, err := Pending(x.Root, rec)
		if err == nil && pending {
			err = fmt.Errorf("%w: %s is still being created", volume.ErrNotFound, rec.SubDir)
		}
		return rec, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return catalog.Record{}, err
	}
	exists, _, err := fsat.Directory(x.Root, id.SubDir)
	if err == nil && !exists {
		err = fmt.Errorf("%w: %s", volume.ErrNotFound, id.Export.Source(id.SubDir))
	}
	return catalog.Record{}, err
}

// Pending reports whether the volume does not exist yet because its content is still
// being copied.
func Pending(root *os.Root, rec catalog.Record) (bool, error) {
	if !rec.Pending {
		return false, nil
	}
	_, err := fsat.LstatBelow(root, rec.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}
