package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// With shared: "true" in its class a volume is only a record, below that of a directory
// shared by all claims of such classes. The directory is created when it is missing and
// never deleted; no volume owns it.

// sharedName is the volume name in the record of a shared directory.
const sharedName = "shared directory"

// checkSharedRequest refuses what a volume of a shared directory cannot have.
func checkSharedRequest(req Request) error {
	switch {
	case req.Source != nil:
		return fmt.Errorf("%w: a data source: the class has shared: \"true\", and a volume cannot set the content of a shared directory", volume.ErrInvalid)
	case req.Mutable != volume.Mutable{}:
		return sharedAttributesError()
	}
	return nil
}

func sharedAttributesError() error {
	return fmt.Errorf("%w: onDelete and mountPermissions do not apply to a volume of a class with shared: \"true\": the directory is not the volume's own", volume.ErrInvalid)
}

// SharedPath returns the path of the record of a volume that shares its directory.
func SharedPath(id volume.ID) string { return path.Join(id.SubDir, id.Name) }

// makeShared creates the shared directory, if it is missing, and the volume.
func (c *Claim) makeShared(ctx context.Context) (Volume, error) {
	made, err := Of(c.want)
	if err != nil {
		return Volume{}, err
	}
	dir := *c
	dir.want = sharedDirectory(c.want, made.ID)
	if _, err := dir.Make(ctx); err != nil {
		return Volume{}, err
	}
	if err := c.Take(ctx); err != nil {
		return Volume{}, err
	}
	if made, err = Of(c.rec); err != nil {
		return Volume{}, err
	}
	return made, c.confirm(ctx, false)
}

// sharedDirectory returns the record of the directory, given that of one of its volumes.
func sharedDirectory(of catalog.Record, id volume.ID) catalog.Record {
	id.Name = sharedName
	return catalog.Record{
		Name: sharedName, ID: id.String(), SubDir: id.SubDir, Shared: catalog.SharedDirectory, OnDelete: of.OnDelete,
		ClusterID: of.ClusterID, MountOptions: of.MountOptions, Created: of.Created, Mode: of.Mode, UID: of.UID, GID: of.GID,
	}
}

// sharedRecord returns the record of a volume that shares its directory.
func sharedRecord(cat session.Records, id volume.ID) (catalog.Record, error) {
	rec, err := cat.Read(SharedPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the shared directory %s has no volume %s", volume.ErrNotFound, id.SubDir, id.Name)
	}
	return rec, err
}
