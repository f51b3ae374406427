package catalog

import (
	"fmt"
	"path"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	snapshotRecord = "record.json"
	// SnapshotData is the directory of a snapshot that holds the volume's content.
	SnapshotData = "data"
)

// Snapshot is the record of a snapshot. It is written before the snapshot is renamed
// into SnapshotsDir, and never changes.
type Snapshot struct {
	Version int `json:"version"`
	// Name is the CSI name, whatever characters it has.
	Name string `json:"name"`
	ID   string `json:"id"`
	// SourceID is the ID of the volume that the snapshot was taken of.
	SourceID string `json:"sourceID"`
	// Capacity of the volume when the snapshot was taken, in bytes; 0 if unknown.
	Capacity int64 `json:"capacity,omitempty"`
	// Bytes and Entries count the content.
	Bytes   int64     `json:"bytes"`
	Entries int64     `json:"entries"`
	Created time.Time `json:"created"`

	unknown unknown
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Snapshot) UnmarshalJSON(b []byte) (err error) {
	type plain Snapshot
	s.unknown, err = unmarshalFields(b, (*plain)(s))
	return err
}

// MarshalJSON implements json.Marshaler.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	type plain Snapshot
	return marshalFields(plain(s), s.unknown)
}

// SnapshotPath is the path of the snapshot below the catalog's directory.
func SnapshotPath(id volume.SnapshotID) string {
	if id.Group != "" {
		return path.Join(GroupPath(id.Group), id.Name)
	}
	return path.Join(SnapshotsDir, id.Name)
}

// ReadSnapshot returns the record of a complete snapshot, by its path below the
// catalog's directory; fs.ErrNotExist if there is none.
func (c *Catalog) ReadSnapshot(dir string) (s Snapshot, err error) {
	b, err := c.meta.ReadFile(path.Join(dir, snapshotRecord))
	if err == nil {
		s, err = decodeSnapshot(b)
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("record of %s: %w", dir, err)
	}
	return s, nil
}

func decodeSnapshot(b []byte) (Snapshot, error) {
	var s Snapshot
	if err := unmarshal(b, &s); err != nil {
		return Snapshot{}, err
	}
	if s.Name == "" || s.ID == "" || s.SourceID == "" {
		return Snapshot{}, &BrokenError{Reason: "record without a name, an ID or a source"}
	}
	return s, nil
}

// WriteSnapshot writes the record into the directory that will become the snapshot.
func (c *Catalog) WriteSnapshot(dir string, s Snapshot) error {
	s.Version = recordVersion
	b, err := marshal(s)
	if err != nil {
		return err
	}
	if err := c.writeFile(path.Join(dir, snapshotRecord), b); err != nil {
		return fmt.Errorf("record of snapshot %s: %w", s.Name, err)
	}
	return nil
}
