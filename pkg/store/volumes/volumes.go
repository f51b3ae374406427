// Package volumes makes, finds and changes volumes: a record in the catalog and a
// directory of the export.
package volumes

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Config of volumes whose requests do not say.
type Config struct {
	// OnDelete and Mode are empty for deleting and for a mode that lets everybody write.
	OnDelete volume.OnDelete
	Mode     volume.Mode
	// ClusterID is noted in every new record; empty for a cluster that is not known.
	ClusterID string
}

// Request asks for a volume.
type Request struct {
	Name         string
	Params       volume.Params
	MountOptions []string
	Size         SizeRange
	// Mutable parameters win over those of the class.
	Mutable volume.Mutable
	// Source is what the content is copied from, by name; empty for an empty volume.
	Source string
}

// Volume that exists.
type Volume struct {
	ID volume.ID
	// Capacity in bytes, 0 when none was asked for.
	Capacity int64
}

// Of returns the volume that a record is of.
func Of(rec catalog.Record) (Volume, error) {
	id, err := idOf(rec)
	return Volume{ID: id, Capacity: rec.Capacity}, err
}

func idOf(rec catalog.Record) (volume.ID, error) {
	id, err := volume.ParseID(rec.ID)
	if err != nil {
		return volume.ID{}, fmt.Errorf("record of %s: %w", rec.SubDir, err)
	}
	return id, nil
}

// Record returns the record of the volume that a request asks for.
//
// Errors: volume.ErrInvalid, volume.ErrOutOfRange, volume.ErrUnsupported.
func (c Config) Record(req Request, now time.Time) (catalog.Record, error) {
	name, err := volume.DirName(req.Name)
	if err != nil {
		return catalog.Record{}, err
	}
	subDir := name
	if req.Params.SubDir != "" {
		if subDir, err = volume.ExpandSubDir(req.Params.SubDir, req.Params.Metadata); err != nil {
			return catalog.Record{}, err
		}
	}
	capacity, err := req.Size.Choose()
	if err != nil {
		return catalog.Record{}, err
	}
	id := volume.ID{Export: req.Params.Export, SubDir: subDir, Name: name, OnDelete: c.onDelete(req)}
	want := catalog.Record{
		Name: req.Name, ID: id.String(), SubDir: subDir, Capacity: capacity,
		Parameters: req.Params.Shape(), Metadata: req.Params.Metadata, ClusterID: c.ClusterID,
		OnDelete: id.OnDelete, MountOptions: req.MountOptions, Created: now.UTC(), Source: req.Source,
		Mode: c.mode(req), UID: req.Params.UID, GID: req.Params.GID,
	}
	switch {
	case req.Params.Shared:
		want.SubDir, want.Shared = SharedPath(id), catalog.SharedVolume
		err = checkShared(req)
	case req.Params.Reuse:
		err = c.checkReuse(want)
	}
	return want, err
}

func (c Config) onDelete(req Request) volume.OnDelete {
	if req.Params.Shared {
		return volume.OnDeleteRetain
	}
	return cmp.Or(req.Mutable.OnDelete, req.Params.OnDelete, c.OnDelete, volume.OnDeleteDelete)
}

// mode of the volume's directory, as far as something says so: that of a copy is
// otherwise its source's.
func (c Config) mode(req Request) volume.Mode {
	said := cmp.Or(req.Mutable.Mode, req.Params.Mode)
	if req.Source == "" {
		return cmp.Or(said, c.Mode)
	}
	return said
}

// Policy of a volume: its record is newer than its ID, which is older than what the
// driver's default is now.
func (c Config) Policy(rec catalog.Record, id volume.ID) volume.OnDelete {
	return cmp.Or(rec.OnDelete, id.OnDelete, c.OnDelete, volume.OnDeleteDelete)
}
