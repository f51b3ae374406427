package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// nameHeld is how long a note without a volume counts as that of a controller
// which is about to make it, and not of one that was killed.
const nameHeld = time.Minute

// One name is one volume. Where a volume's directory does not have its name, the
// name is claimed before the directory, and looked at again once the record of
// the directory is there, like the directory itself: of several controllers that
// give one name several directories all but one see the one.

// nameIt refuses a name that is that of a live volume in another directory, and
// notes the directory where it is not the name itself.
func (s *Store) nameIt(ctx context.Context, cat *catalog.Catalog, want catalog.Record) error {
	name, err := volume.DirName(want.Name)
	if err != nil {
		return err
	}
	other, err := cat.DirectoryOf(name)
	if errors.Is(err, fs.ErrNotExist) && name != want.SubDir {
		var rec catalog.Record
		if rec, err = cat.Read(name); err == nil && rec.Name != want.Name {
			err = fs.ErrNotExist
		}
		other = name
	}
	switch {
	case err == nil && other != want.SubDir:
		return fmt.Errorf("%w: it has the directory %s, asked for is %s", volume.ErrIncompatible, other, want.SubDir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case name == want.SubDir:
		return nil
	}
	if err := s.step(ctx, "note directory of name"); err != nil {
		return err
	}
	for range maxLostRaces {
		err = cat.NoteDirectoryOf(name, want)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		noted, err := cat.NotedDirectoryOf(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has just been taken away
			continue
		case err != nil || noted.SubDir == want.SubDir:
			return err
		case time.Since(noted.Created).Abs() < nameHeld:
			return fmt.Errorf("%w: it gets the directory %s, asked for is %s", volume.ErrInProgress, noted.SubDir, want.SubDir)
		}
		return cat.SetDirectoryOf(name, want)
	}
	return fmt.Errorf("the note of the name %s keeps disappearing", name)
}

func namedAsItsDirectory(rec catalog.Record) bool {
	name, err := volume.DirName(rec.Name)
	return err == nil && name == rec.SubDir
}

// named returns volume.ErrIncompatible when another controller has given the name
// another directory meanwhile.
func named(cat *catalog.Catalog, want catalog.Record) error {
	name, err := volume.DirName(want.Name)
	if err != nil || name == want.SubDir {
		return err
	}
	noted, err := cat.NotedDirectoryOf(name)
	if err == nil && noted.SubDir != want.SubDir {
		err = fmt.Errorf("%w: it gets the directory %s at the same time", volume.ErrIncompatible, noted.SubDir)
	}
	return err
}

// unname takes the note of a name back unless there is its volume.
func unname(cat *catalog.Catalog, want catalog.Record) error {
	name, err := volume.DirName(want.Name)
	if err != nil || name == want.SubDir {
		return err
	}
	have, err := cat.Read(want.SubDir)
	if err == nil && have.Name == want.Name || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return cat.ForgetDirectoryOf(name, want.SubDir)
}
