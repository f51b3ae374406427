// Package catalog keeps the records of volumes on the export itself, the only
// database there is: .nfs-csi/volumes/<subDir>/.record.json says who owns the
// directory <subDir>.
package catalog

import (
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Sharing is the role of a record for a directory that several volumes share.
type Sharing string

// A shared directory has a record that belongs to no volume, so that no volume can own
// it, its parents or its content. The records of its volumes lie below that one, each
// by the name of its volume.
const (
	SharedDirectory Sharing = "directory"
	SharedVolume    Sharing = "volume"
)

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

// Same reports whether both are records of the same volume or archive. The record may
// have changed, but not its name and creation time.
func (r Record) Same(other Record) bool {
	return r.Name == other.Name && r.ArchiveOf == other.ArchiveOf && r.Created.Equal(other.Created)
}

// IsVolume reports whether this is the record of a volume.
func (r Record) IsVolume() bool {
	return r.Name != "" && r.ArchiveOf == "" && r.Shared != SharedDirectory
}

// Claim that the volume was provisioned for, as namespace/name; empty if unknown.
// Neither name has a slash in Kubernetes.
func (r Record) Claim() string {
	namespace, name := r.Metadata[volume.KeyPVCNamespace], r.Metadata[volume.KeyPVCName]
	if namespace == "" || name == "" {
		return ""
	}
	return namespace + "/" + name
}

// SameClaim reports whether both are volumes of the same claim of the same cluster;
// false if either is unknown.
func (r Record) SameClaim(other Record) bool {
	return r.Claim() != "" && r.Claim() == other.Claim() && r.ClusterID != "" && r.ClusterID == other.ClusterID
}
