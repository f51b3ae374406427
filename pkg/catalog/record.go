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

// recordVersion is written into every record. docs/format.md says when it rises and
// what becomes of a record with a higher one.
const recordVersion = 1

// Record says who owns a directory. Fields are only ever added.
type Record struct {
	Version int `json:"version"`
	// Name is the CSI name of the volume, whatever characters it has.
	Name string `json:"name"`
	ID   string `json:"id"`
	// SubDir is the directory, and where the record lies. For a SharedVolume that is
	// below the shared directory, which the ID has.
	SubDir string `json:"subDir"`
	// Capacity in bytes, 0 when none was asked for.
	Capacity int64 `json:"capacity"`
	// Parameters that shape the volume, and apart from them what the provisioner
	// told about the claim.
	Parameters map[string]string `json:"parameters"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	// ClusterID of the cluster whose claim it is; empty where the driver was told none.
	ClusterID    string          `json:"clusterID,omitempty"`
	OnDelete     volume.OnDelete `json:"onDelete"`
	MountOptions []string        `json:"mountOptions,omitempty"`
	// Mode, UID and GID that the directory was to get when it was made. They say
	// nothing of a directory that was there before, which is Adopted as it was.
	Mode    volume.Mode `json:"mode,omitempty"`
	UID     *uint32     `json:"uid,omitempty"`
	GID     *uint32     `json:"gid,omitempty"`
	Adopted bool        `json:"adopted,omitempty"`
	// ReusedFrom is the ID of the volume that the claim had before. As long as there is
	// this record, there may be a note of that, see NoteReuse.
	ReusedFrom string `json:"reusedFrom,omitempty"`
	// Shared is empty for a volume that has its directory for itself.
	Shared Sharing `json:"shared,omitempty"`
	// ArchiveOf is the ID of the volume whose directory is about to be renamed to
	// this one; the record is no volume then.
	ArchiveOf string    `json:"archiveOf,omitempty"`
	Created   time.Time `json:"created"`
	// Source is what the volume was made from, empty for an empty volume. The
	// directory of such a volume is there when it is whole and not before. Pending
	// stands until that was seen, so that one that is still to come is not taken for
	// one that was lost.
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

// Same tells whether both are of one volume, or one archive: its record may have
// changed, but another volume of its name has another.
func (r Record) Same(other Record) bool {
	return r.Name == other.Name && r.ArchiveOf == other.ArchiveOf && r.Created.Equal(other.Created)
}

// BrokenError says that what is in a record's place is none, or none that this
// driver understands.
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

// marshal writes a record of any kind.
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

// unmarshal reads a record of any kind.
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

// decodeOf is decode for the record of a directory.
func decodeOf(b []byte, subDir string) (Record, error) {
	r, err := decode(b)
	if err == nil && r.SubDir != subDir {
		err = &BrokenError{Reason: fmt.Sprintf("it is the record of %q", r.SubDir)}
	}
	return r, err
}
