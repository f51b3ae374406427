package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A volume that ends and whose directory stays leaves a note of that, by the name of
// the directory. DeleteVolume may be repeated when the record is gone, also for an
// earlier volume of the same directory, and a volume's ID alone may say to delete
// what is there.

// retainedName is the name of the note of a directory.
func retainedName(subDir string) string {
	name, err := volume.DirName(path.Clean(subDir))
	if err != nil { // longer than a volume's name may be
		sum := sha256.Sum256([]byte(subDir))
		name = "csi-" + hex.EncodeToString(sum[:])
	}
	return name
}

// NoteRetained notes that the volume of the record ends and its directory stays.
func (c *Catalog) NoteRetained(r Record) error {
	if err := c.setNote(path.Join(retainedDir, retainedName(r.SubDir)), r); err != nil {
		return fmt.Errorf("note that %s is retained: %w", r.SubDir, err)
	}
	return nil
}

// Retained returns the ID of the volume that has ended last of those whose directory
// stayed, empty where there is none. The first notes had the name of the volume,
// which is that of the one asked for.
func (c *Catalog) Retained(subDir, name string) (id string, err error) {
	notes := []string{retainedName(subDir)}
	if byVolume, err := volume.DirName(name); err == nil && byVolume != notes[0] {
		notes = append(notes, byVolume)
	}
	for _, note := range notes {
		r, err := c.readFile(retainedDir, note)
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

// ForgetRetained removes the note of a directory that has become that of the volume
// of the record.
func (c *Catalog) ForgetRetained(r Record) error {
	name := retainedName(r.SubDir)
	note, err := c.readFile(retainedDir, name)
	// That of the volume itself was left at its end, by another controller.
	if err == nil && note.SubDir == r.SubDir && !note.Same(r) {
		err = c.meta.Remove(path.Join(retainedDir, name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note that %s is retained: %w", r.SubDir, err)
	}
	return nil
}

// SweepRetained asks keep about notes of retained directories, at most limit of those
// that come after one, and removes the others. It returns the last one that it has
// asked about, empty when there are no more. When a note was written is told by the
// clock of the server. What is no note stays.
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
	r, err := c.readFile(retainedDir, name)
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
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
