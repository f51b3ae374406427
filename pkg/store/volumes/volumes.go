// Package volumes creates, finds and modifies volumes. A volume is a record in the
// catalog and a directory of the export.
package volumes

import (
	"cmp"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Config holds the defaults of requests that leave a setting out.
type Config struct {
	// OnDelete and Mode default to volume.OnDeleteDelete and DefaultMode.
	OnDelete volume.OnDelete
	Mode     volume.Mode
	// ClusterID is written into every new record; empty if the cluster is unknown.
	ClusterID string
}

// Request asks for a volume.
type Request struct {
	Name         string
	Params       volume.Params
	MountOptions []string
	Size         SizeRange
	// Mutable overrides the parameters of the class.
	Mutable volume.Mutable
	// Source of the content; nil for an empty volume.
	Source *Source
}

// Source of a volume's content: one of the two.
type Source struct {
	Volume   *volume.ID
	Snapshot *volume.SnapshotID
}

func (s *Source) String() string {
	switch {
	case s == nil:
		return ""
	case s.Volume != nil:
		id := *s.Volume
		id.OnDelete = "" // does not identify a volume
		return "volume " + id.String()
	}
	return "snapshot " + s.Snapshot.String()
}

// Record returns the record of the requested volume.
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
		OnDelete: id.OnDelete, MountOptions: req.MountOptions, Created: now.UTC(), Source: req.Source.String(),
		Mode: c.mode(req), UID: req.Params.UID, GID: req.Params.GID,
	}
	switch {
	case req.Params.Shared:
		want.SubDir, want.Shared = SharedPath(id), catalog.SharedVolume
		err = checkSharedRequest(req)
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

// mode returns the mode of the volume's directory, 0 for the default. A copy takes its
// source's mode unless the request sets one.
func (c Config) mode(req Request) volume.Mode {
	mode := cmp.Or(req.Mutable.Mode, req.Params.Mode)
	if req.Source == nil {
		return cmp.Or(mode, c.Mode)
	}
	return mode
}

// Policy returns what DeleteVolume does with the directory. The record overrides the ID,
// and the ID the driver's current default.
func (c Config) Policy(rec catalog.Record, id volume.ID) volume.OnDelete {
	return cmp.Or(rec.OnDelete, id.OnDelete, c.OnDelete, volume.OnDeleteDelete)
}
