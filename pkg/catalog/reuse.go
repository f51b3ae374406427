package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// When a claim is created again, the directory of its old volume is handed to the new
// one. As a record's directory belongs to that record for good (see Held), there is a
// moment without a record. A note says whose directory it is then. It is written
// before the old record is removed and stays as long as the new one; it means nothing
// while there is a record.

// ReusePath is the path of a directory's note below the catalog's directory.
func ReusePath(subDir string) string {
	sum := sha256.Sum256([]byte(path.Clean(subDir)))
	return path.Join(reuseDir, hex.EncodeToString(sum[:20]))
}

// NoteReuse notes that the directory will belong to the volume with the record r, and
// replaces an earlier note.
func (c *Catalog) NoteReuse(r Record) error {
	return reuseError(r.SubDir, c.setNote(ReusePath(r.SubDir), r))
}

// Reuse returns the directory's note; fs.ErrNotExist if there is none.
func (c *Catalog) Reuse(subDir string) (Record, error) {
	note := ReusePath(subDir)
	r, err := c.readNote(path.Dir(note), path.Base(note))
	if err == nil && r.SubDir != path.Clean(subDir) {
		err = &BrokenError{Reason: fmt.Sprintf("it is of %q", r.SubDir)}
	}
	return r, reuseError(subDir, err)
}

// ForgetReuse removes the note if it names this volume.
func (c *Catalog) ForgetReuse(r Record) error {
	next, err := c.Reuse(r.SubDir)
	if err == nil && next.Name == r.Name {
		err = reuseError(r.SubDir, c.meta.Remove(ReusePath(r.SubDir)))
	}
	return fsat.IgnoreNotExist(err)
}

func reuseError(subDir string, err error) error {
	if err != nil {
		return fmt.Errorf("next volume of the directory %s: %w", subDir, err)
	}
	return nil
}
