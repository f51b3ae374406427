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

// noteTTL is how long a note without a volume is taken for that of a controller still
// working on it.
const noteTTL = time.Minute

// One name is one volume. If the directory is not called like the volume, the name is
// reserved before the record is written and checked again afterwards: of several
// controllers that give one name different directories, all but one see the winner.

// reserveName notes the directory of the name, unless both are equal. It fails if a
// volume of that name exists in another directory.
func reserveName(ctx context.Context, x *session.Session, want catalog.Record) error {
	name, err := volume.DirName(want.Name)
	if err != nil || name == want.SubDir || want.Shared == catalog.SharedDirectory { // CheckOnlyOne looks for others later
		return err
	}
	if err := checkNameFree(x.Cat, name, want); err != nil {
		return err
	}
	if err := x.Step(ctx, "reserve name"); err != nil {
		return err
	}
	for range fsat.MaxLostRaces {
		err = x.Cat.NoteDirectoryOf(name, want)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		noted, err := x.Cat.NotedDirectoryOf(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was just released
			continue
		case err != nil || noted.SubDir == want.SubDir:
			return err
		case time.Since(noted.Created).Abs() < noteTTL:
			return fmt.Errorf("%w: another call is creating the volume in the directory %s, the request is for %s", volume.ErrInProgress, noted.SubDir, want.SubDir)
		}
		return x.Cat.SetDirectoryOf(name, want)
	}
	return fmt.Errorf("the reservation of the name %s keeps disappearing", name)
}

// checkNameFree returns volume.ErrIncompatible if a volume of that name exists in another
// directory.
func checkNameFree(cat *catalog.Catalog, name string, want catalog.Record) error {
	other, err := cat.DirectoryOf(name)
	if errors.Is(err, fs.ErrNotExist) {
		var rec catalog.Record
		if rec, err = cat.Read(name); err == nil && rec.Name != want.Name {
			err = fs.ErrNotExist
		}
		other = name
	}
	if err == nil && other != want.SubDir {
		return fmt.Errorf("%w: the volume has the directory %s, the request is for %s", volume.ErrIncompatible, other, want.SubDir)
	}
	return fsat.IgnoreNotExist(err)
}

func nameIsDirectory(rec catalog.Record) bool {
	name, err := volume.DirName(rec.Name)
	return err == nil && name == rec.SubDir
}

// CheckOnlyOne returns an error if another controller gave the name another directory
// meanwhile. It runs after the record is written: of two controllers that both wrote a
// record, the later check sees the other's. After a kill it must run again.
func (c *Claim) CheckOnlyOne(ctx context.Context) error {
	if err := c.Step(ctx, "look for other directories of the name"); err != nil {
		return err
	}
	other, err := otherDirectory(c.Cat, c.rec)
	if other == "" || err != nil {
		return err
	}
	exists, err := volumeExists(c.Session, other)
	if err == nil && exists {
		return fmt.Errorf("%w: the volume has the directory %s, the request is for %s", volume.ErrIncompatible, other, c.rec.SubDir)
	}
	return cmp.Or(err, fmt.Errorf("%w: another call is creating the volume in the directory %s, the request is for %s", volume.ErrInProgress, other, c.rec.SubDir))
}

// volumeExists reports whether the volume of subDir exists, not only its record.
func volumeExists(x *session.Session, subDir string) (bool, error) {
	if rec, err := x.Cat.Read(subDir); err == nil && rec.Shared == catalog.SharedVolume {
		return true, nil
	}
	exists, _, err := fsat.DirectoryNow(x.Root, subDir)
	return exists, err
}

// otherDirectory returns another directory of the record's volume; empty if there is none.
func otherDirectory(cat *catalog.Catalog, rec catalog.Record) (string, error) {
	name, err := volume.DirName(rec.Name)
	if err != nil {
		return "", err
	}
	noted, err := cat.NotedDirectoryOf(name)
	if err == nil && noted.SubDir != rec.SubDir && noted.Name == rec.Name {
		has, err := hasRecord(cat, noted.SubDir, rec.Name)
		// A note later than this record announces another record.
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

// hasRecord reports whether the directory has a record of the named volume.
func hasRecord(cat *catalog.Catalog, subDir, name string) (bool, error) {
	have, err := cat.Read(subDir)
	return err == nil && have.Name == name, fsat.IgnoreNotExist(err)
}

// releaseName removes the reservation of a name, unless its volume has a record.
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

// ForgetName removes the note of a volume's directory under its name.
func ForgetName(cat *catalog.Catalog, rec catalog.Record, id volume.ID) error {
	if id.Name == rec.SubDir {
		return nil
	}
	return cat.ForgetDirectoryOf(id.Name, rec.SubDir)
}
