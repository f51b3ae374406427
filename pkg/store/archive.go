package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"strings"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	archivePrefix = "archived-"
	// maxArchives of one name and one volume's name, which has to have been made
	// and archived as often.
	maxArchives = 1 << 16
)

// archive renames the directory to one beside it that nobody has, which it takes
// under a record of its own for that moment: rename(2) would put an empty
// directory there out of the way, and that could be a volume just made.
func (s *Store) archive(ctx context.Context, root *os.Root, cat *catalog.Catalog, id volume.ID) error {
	from, err := openPlace(root, id.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		return dropReservations(root, cat, id)
	}
	if err != nil {
		return err
	}
	defer from.close()
	for subDir := range archiveNames(id) {
		if _, err := from.parent.Lstat(from.name); errors.Is(err, fs.ErrNotExist) {
			// Done before, or the reply to a rename that took place was lost.
			return dropReservations(root, cat, id)
		}
		if err := s.step(ctx, "reserve archive"); err != nil {
			return err
		}
		mine, err := reserve(cat, subDir, id)
		if err != nil {
			return err
		}
		if !mine {
			continue
		}
		to := place{parent: from.parent, name: path.Base(subDir)}
		_, err = to.parent.Lstat(to.name)
		if errors.Is(err, fs.ErrNotExist) {
			if err := s.step(ctx, "rename to archive"); err != nil {
				return err
			}
			if err = rename(from, to); errors.Is(err, fs.ErrNotExist) {
				continue // see above
			}
		} else if err == nil { // there is an older one: keep both
			if err = cat.Remove(subDir); err == nil {
				continue
			}
		}
		if err == nil {
			err = s.step(ctx, "release archive")
		}
		if err == nil {
			err = cat.Remove(subDir)
		}
		return err
	}
	return fmt.Errorf("archive %s: all of %d names are taken", id.SubDir, maxArchives)
}

// archiveNames are where the volume may be archived, in order: archived-NAME, as
// csi-driver-nfs has it, then with the volume's name, then with a number too.
func archiveNames(id volume.ID) iter.Seq[string] {
	dir, base := path.Dir(id.SubDir), path.Base(id.SubDir)
	return func(yield func(string) bool) {
		if !yield(path.Join(dir, archivePrefix+cut(base, 240))) {
			return
		}
		name := archivePrefix + cut(base, 110) + "." + cut(id.Name, 110)
		for n := range maxArchives {
			numbered := name
			if n > 0 {
				numbered = fmt.Sprintf("%s.%d", name, n+1)
			}
			if !yield(path.Join(dir, numbered)) {
				return
			}
		}
	}
}

// cut shortens a name without cutting a character in two.
func cut(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// reserve takes a directory's name for the archive of the volume, unless it
// belongs to a live volume.
func reserve(cat *catalog.Catalog, subDir string, id volume.ID) (bool, error) {
	if err := cat.Conflict(subDir); errors.Is(err, volume.ErrOwned) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	rec := catalog.Record{
		Name: id.Name, ID: id.String(), SubDir: subDir, OnDelete: volume.OnDeleteRetain,
		Created: time.Now().UTC(), ArchiveOf: id.String(),
	}
	err := cat.Create(rec)
	if errors.Is(err, volume.ErrOwned) { // since a moment ago
		return false, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	have, err := cat.Read(subDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && archives(have, id), err
}

// archives tells whether the record is a reservation for this volume.
func archives(rec catalog.Record, id volume.ID) bool {
	of, err := volume.ParseID(rec.ArchiveOf)
	return rec.ArchiveOf != "" && err == nil && of.Export == id.Export && of.SubDir == id.SubDir && of.Name == id.Name
}

// dropReservations releases what a call that was killed after its rename had
// reserved. There is at most one, and all names before it are taken.
func dropReservations(root *os.Root, cat *catalog.Catalog, id volume.ID) error {
	for subDir := range archiveNames(id) {
		rec, err := cat.Read(subDir)
		if err == nil && archives(rec, id) {
			return cat.Remove(subDir)
		}
		if errors.Is(err, fs.ErrNotExist) {
			if _, err = lstat(root, subDir); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
