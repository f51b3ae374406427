package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
)

// When a claim is made again, the directory of its volume becomes that of another
// one. A record's place is that of one record for good (see Held), so that there is
// none for a moment. A note says whose directory it is then. It is there before the
// old record goes and stays as long as the new one; where there is a record, it says
// nothing.

// ReusePath is where the note of a directory lies below the catalog's directory.
func ReusePath(subDir string) string {
	sum := sha256.Sum256([]byte(path.Clean(subDir)))
	return path.Join(reuseDir, hex.EncodeToString(sum[:20]))
}

// NoteReuse notes that the directory will be that of the volume which r will be the
// record of, whatever was noted before.
func (c *Catalog) NoteReuse(r Record) error {
	return reuseError(r.SubDir, c.setNote(ReusePath(r.SubDir), r))
}

// Reuse returns what NoteReuse has noted of the directory; fs.ErrNotExist for nothing.
func (c *Catalog) Reuse(subDir string) (Record, error) {
	note := ReusePath(subDir)
	r, err := c.readFile(path.Dir(note), path.Base(note))
	if err == nil && r.SubDir != path.Clean(subDir) {
		err = &BrokenError{Reason: fmt.Sprintf("it is of %q", r.SubDir)}
	}
	return r, reuseError(subDir, err)
}

// ForgetReuse takes the note away if it is of this volume.
func (c *Catalog) ForgetReuse(r Record) error {
	next, err := c.Reuse(r.SubDir)
	if err == nil && next.Name == r.Name {
		err = reuseError(r.SubDir, c.meta.Remove(ReusePath(r.SubDir)))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func reuseError(subDir string, err error) error {
	if err != nil {
		return fmt.Errorf("next volume of the directory %s: %w", subDir, err)
	}
	return nil
}
