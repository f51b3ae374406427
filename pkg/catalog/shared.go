package catalog

// Sharing is what a record has to do with a directory that several volumes share.
type Sharing string

// A shared directory has a record that belongs to no volume, so that none can have it
// or what is around or in it for itself. The records of its volumes lie below that
// one, each by the name of its volume.
const (
	SharedDirectory Sharing = "directory"
	SharedVolume    Sharing = "volume"
)

// IsVolume tells whether the record is that of a volume.
func (r Record) IsVolume() bool {
	return r.Name != "" && r.ArchiveOf == "" && r.Shared != SharedDirectory
}

// around is above for the directory of a record.
func (c *Catalog) around(r Record) error {
	if r.Shared == SharedVolume {
		return nil // it lies in the shared directory
	}
	return c.above(r.SubDir)
}
