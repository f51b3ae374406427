package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// nameHeld is how long a note without a volume counts as that of a controller
// which is about to make it, and not of one that was killed.
const nameHeld = time.Minute

// One name is one volume. Where a volume's directory does not have its name, the
// name is claimed before the directory, and looked at again once the record of
// the directory is there, like the directory itself: of several controllers that
// give one name several directories all but one see the one.

// reserveName refuses a name that is that of a live volume in another directory, and
// notes the directory where it is not the name itself.
func reserveName(ctx context.Context, x *session.Session, want catalog.Record) error {
	name, err := volume.DirName(want.Name)
	if err != nil || name == want.SubDir || want.Shared == catalog.SharedDirectory { // CheckOnlyOne looks for another one later
		return err
	}
	if err := freeName(x.Cat, name, want); err != nil {
		return err
	}
	if err := x.Step(ctx, "note directory of name"); err != nil {
		return err
	}
	for range fsat.MaxLostRaces {
		err = x.Cat.NoteDirectoryOf(name, want)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		noted, err := x.Cat.NotedDirectoryOf(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has just been taken away
			continue
		case err != nil || noted.SubDir == want.SubDir:
			return err
		case time.Since(noted.Created).Abs() < nameHeld:
			return fmt.Errorf("%w: it gets the directory %s, asked for is %s", volume.ErrInProgress, noted.SubDir, want.SubDir)
		}
		return x.Cat.SetDirectoryOf(name, want)
	}
	return fmt.Errorf("the note of the name %s keeps disappearing", name)
}

// freeName returns volume.ErrIncompatible when the name is that of a live volume in
// another directory.
func freeName(cat *catalog.Catalog, name string, want catalog.Record) error {
	other, err := cat.DirectoryOf(name)
	if errors.Is(err, fs.ErrNotExist) {
		var rec catalog.Record
		if rec, err = cat.Read(name); err == nil && rec.Name != want.Name {
			err = fs.ErrNotExist
		}
		other = name
	}
	if err == nil && other != want.SubDir {
		return fmt.Errorf("%w: it has the directory %s, asked for is %s", volume.ErrIncompatible, other, want.SubDir)
	}
	return fsat.IgnoreNotExist(err)
}

func namedAsItsDirectory(rec catalog.Record) bool {
	name, err := volume.DirName(rec.Name)
	return err == nil && name == rec.SubDir
}

// CheckOnlyOne returns an error when another controller has given the name another
// directory meanwhile. It comes after the record: of two directories of a name, each
// with its record, whoever looks later sees the other. So it has to come again after a
// kill, as long as nothing says that it was done.
func (c *Claim) CheckOnlyOne(ctx context.Context) error {
	if err := c.Step(ctx, "look for other directories of the name"); err != nil {
		return err
	}
	other, err := otherDirectory(c.Cat, c.rec)
	if other == "" || err != nil {
		return err
	}
	there, err := isMade(c.Session, other)
	if err == nil && there {
		return fmt.Errorf("%w: it has the directory %s, asked for is %s", volume.ErrIncompatible, other, c.rec.SubDir)
	}
	return cmp.Or(err, fmt.Errorf("%w: it gets the directory %s at the same time, asked for is %s", volume.ErrInProgress, other, c.rec.SubDir))
}

// isMade tells whether what a record stands for is there.
func isMade(x *session.Session, subDir string) (bool, error) {
	if rec, err := x.Cat.Read(subDir); err == nil && rec.Shared == catalog.SharedVolume {
		return true, nil
	}
	there, _, err := fsat.DirectoryNow(x.Root, subDir)
	return there, err
}

// otherDirectory of the volume that the record is of; empty if there is none.
func otherDirectory(cat *catalog.Catalog, rec catalog.Record) (string, error) {
	name, err := volume.DirName(rec.Name)
	if err != nil {
		return "", err
	}
	noted, err := cat.NotedDirectoryOf(name)
	if err == nil && noted.SubDir != rec.SubDir && noted.Name == rec.Name {
		has, err := hasRecord(cat, noted.SubDir, rec.Name)
		// Whoever noted another directory after this one is about to make a record.
		if err != nil || has || name != rec.SubDir {
			return noted.SubDir, err
		}
	}
	if fsat.IgnoreNotExist(err) != nil || name == rec.SubDir {
		return "", fsat.IgnoreNotExist(err)
	}
	if has, err := hasRecord(cat, name, rec.Name); err != nil || !has {
		return "", err
	}
	return name, nil
}

// hasRecord tells whether the directory is that of the volume of this name.
func hasRecord(cat *catalog.Catalog, subDir, name string) (bool, error) {
	have, err := cat.Read(subDir)
	return err == nil && have.Name == name, fsat.IgnoreNotExist(err)
}

// releaseName takes the note of a name back unless there is its volume.
func releaseName(cat *catalog.Catalog, want catalog.Record) error {
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

// ForgetName removes the note that leads from the name of a volume to its directory.
func ForgetName(cat *catalog.Catalog, rec catalog.Record, id volume.ID) error {
	if id.Name == rec.SubDir {
		return nil
	}
	return cat.ForgetDirectoryOf(id.Name, rec.SubDir)
}
