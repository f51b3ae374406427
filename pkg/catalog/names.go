package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// A volume whose directory is not called by its name is indexed by name:
// names/<name> is a copy of its record, of which only the directory counts. It shows
// when CreateVolume is repeated for a name with another directory.

func namePath(name string) string { return path.Join(namesDir, name) }

// DirectoryOf returns the directory of the live volume of that name if it differs
// from the name; fs.ErrNotExist if there is none.
func (c *Catalog) DirectoryOf(name string) (subDir string, err error) {
	there, err := c.NotedDirectoryOf(name)
	if err != nil {
		return "", err
	}
	rec, err := c.Read(there.SubDir)
	if err == nil && rec.Name != there.Name {
		err = fs.ErrNotExist // that volume is gone, and its directory has another owner
	}
	if err != nil {
		return "", err
	}
	return there.SubDir, nil
}

// NotedDirectoryOf returns the note of the name, whether or not its volume exists;
// fs.ErrNotExist if there is none.
func (c *Catalog) NotedDirectoryOf(name string) (Record, error) {
	noted, err := c.readNote(namesDir, name)
	return noted, noteError(name, err)
}

// NoteDirectoryOf is SetDirectoryOf for a name without a note; fs.ErrExist if it has
// one. Of any number of controllers exactly one succeeds.
func (c *Catalog) NoteDirectoryOf(name string, r Record) error {
	note := namePath(name)
	return noteError(name, c.putNote(note, r, func(temp string) error {
		err := c.meta.Link(temp, note)
		if errors.Is(err, fs.ErrExist) && c.sameFile(temp, note) {
			err = nil // the reply was lost, and the request was retransmitted
		}
		return errors.Join(err, c.meta.Remove(temp))
	}))
}

// SetDirectoryOf notes the directory of the volume with the record r, and replaces an
// earlier note.
func (c *Catalog) SetDirectoryOf(name string, r Record) error {
	return noteError(name, c.setNote(namePath(name), r))
}

func noteError(name string, err error) error {
	if err != nil {
		return fmt.Errorf("directory of the volume %s: %w", name, err)
	}
	return nil
}

// ForgetDirectoryOf removes the note if it names subDir.
func (c *Catalog) ForgetDirectoryOf(name, subDir string) error {
	there, err := c.readNote(namesDir, name)
	if err == nil && there.SubDir == subDir {
		err = c.meta.Remove(namePath(name))
	}
	return noteError(name, fsat.IgnoreNotExist(err))
}

func (c *Catalog) sameFile(a, b string) bool {
	infoA, errA := c.meta.Lstat(a)
	infoB, errB := c.meta.Lstat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
