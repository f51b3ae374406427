package copies

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func exportOf(s *volumes.Source) volume.Export {
	if s.Volume != nil {
		return s.Volume.Export
	}
	return s.Snapshot.Export
}

func keyOf(s *volumes.Source) session.Key {
	if s.Volume != nil {
		return session.Key{Export: s.Volume.Export, SubDir: s.Volume.SubDir}
	}
	return session.SnapshotKey(*s.Snapshot)
}

// volumeOf names the volume that is copied, directly or from a snapshot.
func volumeOf(s *volumes.Source) string {
	if s.Volume != nil {
		return s.Volume.Export.Source(cmp.Or(s.Volume.Name, s.Volume.SubDir))
	}
	return s.Snapshot.Export.Source(s.Snapshot.Source)
}

// SnapshotRequest asks for a snapshot.
type SnapshotRequest struct {
	Name   string
	Source volume.ID
	// Export to keep it on; nil for that of the volume.
	Export       *volume.Export
	MountOptions []string
}

// Snapshot is a complete snapshot. One that is being made has no name yet.
type Snapshot struct {
	ID volume.SnapshotID
	// SourceID is the volume ID in the request that made the snapshot.
	SourceID string
	// Capacity of the volume when the snapshot was made, in bytes, 0 if unknown. A claim
	// that restores the snapshot has at least this size.
	Capacity int64
	// Bytes in its files, without compression or shared blocks. They may exceed the
	// capacity, which is not enforced.
	Bytes   int64
	Entries int64
	Created time.Time
}

// SnapshotOf is the snapshot of a record.
func SnapshotOf(rec catalog.Snapshot) (Snapshot, error) {
	id, err := volume.ParseSnapshotID(rec.ID)
	if err != nil {
		return Snapshot{}, fmt.Errorf("record of snapshot %s: %w", rec.Name, &catalog.BrokenError{Reason: err.Error()})
	}
	return Snapshot{ID: id, SourceID: rec.SourceID, Capacity: rec.Capacity, Bytes: rec.Bytes, Entries: rec.Entries, Created: rec.Created}, nil
}

// GroupRequest asks for a group snapshot.
type GroupRequest struct {
	Name    string
	Sources []Handle
	// Export to keep it on; nil for that of the first source by ID.
	Export       *volume.Export
	MountOptions []string
	// AllowWrites makes it also when a source is written to meanwhile.
	AllowWrites bool
}

// Handle is a volume ID and the caller's spelling of it.
type Handle struct {
	volume.ID
	Text string
}

// Group is a group snapshot. All of it is on one export, even if its sources are on
// several, so that one rename creates it and one removes it.
type Group struct {
	ID      volume.GroupID
	Members []Snapshot
	Created time.Time
}

// source is the same for all forms of the volume's ID.
func (h Handle) source() string { return (&volumes.Source{Volume: &h.ID}).String() }

func sourcesOf(list []Handle) string {
	var names []string
	for _, h := range list {
		names = append(names, h.source())
	}
	return strings.Join(names, ", ")
}
