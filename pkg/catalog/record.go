// Package catalog keeps the records of volumes on the export itself, the only
// database there is: .nfs-csi/volumes/<subDir>/.record.json says who owns the
// directory <subDir>.
package catalog

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// recordVersion is written into every record. docs/format.md says when it is raised
// and how a record with a higher version is treated.
const recordVersion = 1

// Record says who owns a directory. Fields are only ever added.
type Record struct {
	Version int `json:"version"`
	// Name is the CSI name of the volume, whatever characters it has.
	Name string `json:"name"`
	ID   string `json:"id"`
	// SubDir is the directory, and the path of the record. For a SharedVolume it lies
	// below the shared directory, which is the one in the ID.
	SubDir string `json:"subDir"`
	// Capacity in bytes, 0 when none was requested.
	Capacity int64 `json:"capacity"`
	// Parameters shape the volume. Metadata is what the provisioner passed about the
	// claim.
	Parameters map[string]string `json:"parameters"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	// ClusterID is the cluster of the claim; empty if the driver has none configured.
	ClusterID    string          `json:"clusterID,omitempty"`
	OnDelete     volume.OnDelete `json:"onDelete"`
	MountOptions []string        `json:"mountOptions,omitempty"`
	// Mode, UID and GID that were requested for a new directory. They do not apply to
	// one that existed before, which is Adopted unchanged.
	Mode    volume.Mode `json:"mode,omitempty"`
	UID     *uint32     `json:"uid,omitempty"`
	GID     *uint32     `json:"gid,omitempty"`
	Adopted bool        `json:"adopted,omitempty"`
	// ReusedFrom is the ID of the claim's previous volume. While this record exists,
	// there may be a note of it, see NoteReuse.
	ReusedFrom string `json:"reusedFrom,omitempty"`
	// Shared is empty for a volume with a directory of its own.
	Shared Sharing `json:"shared,omitempty"`
	// ArchiveOf is the ID of the volume whose directory is about to be renamed to this
	// one. Such a record is not a volume.
	ArchiveOf string    `json:"archiveOf,omitempty"`
	Created   time.Time `json:"created"`
	// Source is what the volume was copied from; empty for an empty volume. The
	// directory of a copy appears once the copy is complete. Pending is set until it
	// has been seen, so that a directory still to come is not mistaken for a lost one.
	Source  string `json:"source,omitempty"`
	Pending bool   `json:"pending,omitempty"`

	unknown unknown
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Record) UnmarshalJSON(b []byte) (err error) {
	type plain Record
	r.unknown, err = unmarshalFields(b, (*plain)(r))
	return err
}

// MarshalJSON implements json.Marshaler.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record
	return marshalFields(plain(r), r.unknown)
}

// Same reports whether both are records of the same volume or archive. The record may
// have changed, but not its name and creation time.
func (r Record) Same(other Record) bool {
	return r.Name == other.Name && r.ArchiveOf == other.ArchiveOf && r.Created.Equal(other.Created)
}

// BrokenError says that what was found instead of a record is not one, or not one that
// this driver understands.
type BrokenError struct {
	Reason string
	Err    error // volume.ErrNewerRecord, or nil
}

func (e *BrokenError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%v: %s", e.Err, e.Reason)
	}
	return e.Reason
}

func (e *BrokenError) Unwrap() error { return e.Err }

func encode(r Record) ([]byte, error) {
	r.Version = recordVersion
	return marshal(r)
}

// marshal encodes a record of any kind.
func marshal(record any) ([]byte, error) {
	b, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

func decode(b []byte) (Record, error) {
	var r Record
	if err := unmarshal(b, &r); err != nil {
		return Record{}, err
	}
	if r.Name == "" || r.SubDir == "" {
		return Record{}, &BrokenError{Reason: "record without a name or a directory"}
	}
	if _, err := volume.ParseOnDelete(string(r.OnDelete)); err != nil {
		return Record{}, &BrokenError{Reason: err.Error()} // or the directory would be deleted
	}
	return r, nil
}

// unmarshal decodes a record of any kind.
func unmarshal(b []byte, record any) error {
	var format struct{ Version int }
	if err := json.Unmarshal(b, &format); err != nil {
		return &BrokenError{Reason: fmt.Sprintf("not a record: %v", err)}
	}
	if format.Version > recordVersion {
		return &BrokenError{fmt.Sprintf("it has version %d, this driver knows up to %d", format.Version, recordVersion), volume.ErrNewerRecord}
	}
	if format.Version < 1 {
		return &BrokenError{Reason: fmt.Sprintf("record version %d, the first is 1", format.Version)}
	}
	if err := json.Unmarshal(b, record); err != nil {
		return &BrokenError{Reason: fmt.Sprintf("not a record: %v", err)}
	}
	return nil
}

// decodeOf is decode that checks which directory the record is of.
func decodeOf(b []byte, subDir string) (Record, error) {
	r, err := decode(b)
	if err == nil && r.SubDir != subDir {
		err = &BrokenError{Reason: fmt.Sprintf("it is the record of %q", r.SubDir)}
	}
	return r, err
}
