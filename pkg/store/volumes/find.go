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

// Find returns the record of a volume that exists, or an empty one for a volume of a
// predecessor.
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
			err = fmt.Errorf("%w: its directory is that of %s", volume.ErrNotFound, rec.ID)
		}
		if err == nil {
			err = exists(x.Root, rec)
		}
		return rec, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return catalog.Record{}, err
	}
	there, _, err := fsat.Directory(x.Root, id.SubDir)
	if err == nil && !there {
		err = fmt.Errorf("%w: %s", volume.ErrNotFound, id.Export.Source(id.SubDir))
	}
	return catalog.Record{}, err
}

func exists(root *os.Root, rec catalog.Record) error {
	coming, err := Pending(root, rec)
	if err == nil && coming {
		err = fmt.Errorf("%w: %s is still being made", volume.ErrNotFound, rec.SubDir)
	}
	return err
}

// Pending tells whether the volume is one that is still being copied: one that
// does not exist yet.
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
