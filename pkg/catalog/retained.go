package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A deleted volume whose directory is retained leaves a note, named by the directory:
// DeleteVolume may be repeated after the record is gone, even for an earlier volume of
// the same directory, and the volume ID alone may say to delete what is there.

// retainedName is the file name of the note of a directory.
func retainedName(subDir string) string {
	name, err := volume.DirName(path.Clean(subDir))
	if err != nil { // longer than a volume's name may be
		sum := sha256.Sum256([]byte(subDir))
		name = "csi-" + hex.EncodeToString(sum[:])
	}
	return name
}

// NoteRetained notes that the directory of a deleted volume is retained.
func (c *Catalog) NoteRetained(r Record) error {
	return retainedError(r.SubDir, c.setNote(path.Join(retainedDir, retainedName(r.SubDir)), r))
}

func retainedError(subDir string, err error) error {
	if err != nil {
		return fmt.Errorf("note that %s is retained: %w", subDir, err)
	}
	return nil
}

// Retained returns the ID of the last deleted volume whose directory was retained as
// subDir; empty if there is none. The first notes were named by the volume, so they
// are looked up by name as well.
func (c *Catalog) Retained(subDir, name string) (id string, err error) {
	notes := []string{retainedName(subDir)}
	if byVolume, err := volume.DirName(name); err == nil && byVolume != notes[0] {
		notes = append(notes, byVolume)
	}
	for _, note := range notes {
		r, err := c.readNote(retainedDir, note)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", fmt.Errorf("find out whether %s is retained: %w", subDir, err)
		}
		if r.SubDir == path.Clean(subDir) {
			return r.ID, nil
		}
	}
	return "", nil
}

// ForgetRetained removes the note of a directory that belongs to the volume of the
// record by now.
func (c *Catalog) ForgetRetained(r Record) error {
	name := retainedName(r.SubDir)
	note, err := c.readNote(retainedDir, name)
	// A note of the volume itself is kept: another controller wrote it when it deleted it.
	if err == nil && note.SubDir == r.SubDir && !note.Same(r) {
		err = c.meta.Remove(path.Join(retainedDir, name))
	}
	return retainedError(r.SubDir, fsat.IgnoreNotExist(err))
}

// SweepRetained passes notes of retained directories to keep, at most limit of them and
// only those after a given one, and removes those that need not be kept. It returns
// the last note it has looked at, or empty if there are no more. written is the
// server's time. Files that are not notes stay.
func (c *Catalog) SweepRetained(after string, limit int, keep func(r Record, written time.Time) (bool, error)) (last string, err error) {
	entries, err := fs.ReadDir(c.meta.FS(), retainedDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("list retained directories: %w", err)
	}
	for _, e := range entries { // sorted by fs.ReadDir
		if e.Name() <= after {
			continue
		}
		if limit--; limit < 0 {
			return last, nil
		}
		last = e.Name()
		if err := c.sweepRetained(last, keep); err != nil {
			return last, fmt.Errorf("note %s of a retained directory: %w", last, err)
		}
	}
	return "", nil
}

func (c *Catalog) sweepRetained(name string, keep func(Record, time.Time) (bool, error)) error {
	r, err := c.readNote(retainedDir, name)
	if _, broken := errors.AsType[*BrokenError](err); broken {
		return nil
	}
	var info fs.FileInfo
	if err == nil {
		info, err = c.meta.Lstat(path.Join(retainedDir, name))
	}
	stays := false
	if err == nil {
		stays, err = keep(r, info.ModTime())
	}
	if err == nil && !stays {
		err = c.meta.Remove(path.Join(retainedDir, name))
	}
	return fsat.IgnoreNotExist(err)
}
