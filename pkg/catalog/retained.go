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
	var b []byte
	if err == nil {
		b, err = encode(r)
	}
	if err == nil {
		err = c.replace(note, b)
	}
	if err != nil {
		return fmt.Errorf("note that %s is retained: %w", r.SubDir, err)
	}
	return nil
}

func (c *Catalog) replace(name string, b []byte) error {
	temp, err := c.writeTemp(b)
	if err != nil {
		return err
	}
	if err = c.meta.MkdirAll(path.Dir(name), dirMode); err == nil {
		err = c.meta.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, c.meta.Remove(temp))
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
