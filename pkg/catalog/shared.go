package catalog

// Sharing is the role of a record for a directory that several volumes share.
type Sharing string

// A shared directory has a record that belongs to no volume, so that no volume can own
// it, its parents or its content. The records of its volumes lie below that one, each
// by the name of its volume.
const (
	SharedDirectory Sharing = "directory"
	SharedVolume    Sharing = "volume"
)

// IsVolume reports whether this is the record of a volume.
func (r Record) IsVolume() bool {
	return r.Name != "" && r.ArchiveOf == "" && r.Shared != SharedDirectory
}
