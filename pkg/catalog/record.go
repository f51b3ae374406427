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

// recordVersion is written into every record. A record with a higher one was
// written by a driver that knows more; it is left alone.
const recordVersion = 1

// Record says who owns a directory. Fields are only ever added.
type Record struct {
	Version int `json:"version"`
	// Name is the CSI name of the volume, whatever characters it has.
	Name   string `json:"name"`
	ID     string `json:"id"`
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
type BrokenError struct{ Reason string }

func (e *BrokenError) Error() string { return e.Reason }

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
	if err := unmarshal(b, &r, &r.Version); err != nil {
		return Record{}, err
	}
	if r.Name == "" || r.SubDir == "" {
		return Record{}, &BrokenError{"record without a name or a directory"}
	}
	return r, nil
}

// unmarshal reads a record of any kind; version is the field of it.
func unmarshal(b []byte, record any, version *int) error {
	if err := json.Unmarshal(b, record); err != nil {
		return &BrokenError{fmt.Sprintf("not a record: %v", err)}
	}
	if *version < 1 || *version > recordVersion {
		return &BrokenError{fmt.Sprintf("record version %d, this driver knows up to %d", *version, recordVersion)}
	}
	return nil
}

// decodeOf is decode for the record of a directory.
func decodeOf(b []byte, subDir string) (Record, error) {
	r, err := decode(b)
	if err == nil && r.SubDir != subDir {
		err = &BrokenError{fmt.Sprintf("it is the record of %q", r.SubDir)}
	}
	return r, err
}
