package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A volume whose record alone says that its directory is to be kept leaves a copy of
// that: DeleteVolume may be repeated when the record is gone, and the volume's ID says
// to delete what is there.

func retainedPath(name string) (string, error) {
	file, err := volume.DirName(name)
	return path.Join(retainedDir, file), err
}

// NoteRetained notes that the volume of the name ends and its directory stays.
func (c *Catalog) NoteRetained(name string, r Record) error {
	note, err := retainedPath(name)
	if err == nil {
		err = c.setNote(note, r)
	}
	if err != nil {
		return fmt.Errorf("note that %s is retained: %w", r.SubDir, err)
	}
	return nil
}

// Retained tells whether the volume of the name has ended and its directory stayed.
func (c *Catalog) Retained(name, subDir string) (bool, error) {
	note, err := retainedPath(name)
	var r Record
	if err == nil {
		r, err = c.readFile(path.Dir(note), path.Base(note))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out whether %s is retained: %w", subDir, err)
	}
	return r.SubDir == path.Clean(subDir), nil
}
