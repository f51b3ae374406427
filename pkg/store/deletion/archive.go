package deletion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"strings"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	// maxArchives of one name and one volume's name, which has to have been made
	// and archived as often.
	maxArchives = 1 << 16
)

// archive takes the directory away, as a delete does, and puts it beside where it
// was under a name that nobody has.
func (d *Deletion) archive(ctx context.Context) (own bool, err error) {
	q, err := d.quarantineOwn(ctx, catalog.ArchivingKind(d.Key.SubDir))
	if err != nil || !q.own {
		return false, err
	}
	return true, d.finishArchive(ctx)
}

// finishArchive archives what was quarantined, also by a call that was killed.
func (d *Deletion) finishArchive(ctx context.Context) error {
	names, err := d.Cat.Temporary(catalog.ArchivingKind(d.Key.SubDir))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := d.archiveQuarantined(ctx, path.Base(name)); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return dropReservations(d.Session, d.id)
	}
	return nil
}

// archiveQuarantined takes the new name under a record of its own for the moment of the
// rename: rename(2) would put an empty directory there out of the way, and that
// could be a volume just made.
func (d *Deletion) archiveQuarantined(ctx context.Context, name string) error {
	temp, _, err := d.Cat.Temp("")
	if err != nil {
		return err
	}
	for subDir := range archiveNames(d.id) {
		if err := d.Step(ctx, "reserve archive"); err != nil {
			return err
		}
		reserved, err := reserve(d.Cat, subDir, d.id)
		if err != nil {
			return err
		}
		if reserved.SubDir == "" {
			continue
		}
		free, err := d.archiveAs(ctx, fsat.Place{At: temp, Name: name}, subDir)
		if err == nil {
			err = d.Step(ctx, "release archive")
		}
		if err == nil {
			err = d.Cat.Remove(reserved)
		}
		if err != nil || free {
			return err
		}
	}
	return fmt.Errorf("archive %s: all of %d names are taken", d.id.SubDir, maxArchives)
}

// archiveAs renames the directory, unless there is one of that name: then both
// are kept.
func (d *Deletion) archiveAs(ctx context.Context, from fsat.Place, subDir string) (free bool, err error) {
	to, err := fsat.MakePlace(d.Root, subDir)
	if err != nil {
		return false, err
	}
	defer to.Close()
	if _, err := to.Parent.Lstat(to.Name); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := d.Step(ctx, "rename to archive"); err != nil {
		return false, err
	}
	err = from.Rename(to)
	if errors.Is(err, fs.ErrNotExist) { // by another controller, or the reply was lost
		err = nil
	}
	return true, err
}

// archiveNames are where the volume may be archived, in order: archived-NAME, as
// csi-driver-nfs has it, then with the volume's name, then with a number too.
func archiveNames(id volume.ID) iter.Seq[string] {
	dir, base := path.Dir(id.SubDir), path.Base(id.SubDir)
	return func(yield func(string) bool) {
		if !yield(path.Join(dir, volumes.ArchivePrefix+cut(base, 240))) {
			return
		}
		name := volumes.ArchivePrefix + cut(base, 110) + "." + cut(id.Name, 110)
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
// belongs to a live volume; then the record is empty.
func reserve(cat *catalog.Catalog, subDir string, id volume.ID) (catalog.Record, error) {
	if err := cat.CheckNotNested(subDir); errors.Is(err, volume.ErrOwned) {
		return catalog.Record{}, nil
	} else if err != nil {
		return catalog.Record{}, err
	}
	rec := catalog.Record{
		Name: id.Name, ID: id.String(), SubDir: subDir, OnDelete: volume.OnDeleteRetain,
		Created: time.Now().UTC(), ArchiveOf: id.String(),
	}
	err := cat.Create(rec)
	switch {
	case err == nil:
		return rec, nil
	case errors.Is(err, volume.ErrOwned): // since a moment ago
		return catalog.Record{}, nil
	case !errors.Is(err, fs.ErrExist):
		return catalog.Record{}, err
	}
	have, err := cat.Read(subDir)
	if err != nil || !archives(have, id) {
		return catalog.Record{}, fsat.IgnoreNotExist(err)
	}
	return have, nil
}

// archives tells whether the record is a reservation for this volume.
func archives(rec catalog.Record, id volume.ID) bool {
	of, err := volume.ParseID(rec.ArchiveOf)
	return rec.ArchiveOf != "" && err == nil && of.Export == id.Export && of.SubDir == id.SubDir && of.Name == id.Name
}

// dropReservations releases what a call that was killed after its rename had
// reserved. There is at most one, and all names before it are taken.
func dropReservations(x *session.Session, id volume.ID) error {
	for subDir := range archiveNames(id) {
		rec, err := x.Cat.Read(subDir)
		if err == nil && archives(rec, id) {
			return x.Cat.Remove(rec)
		}
		if errors.Is(err, fs.ErrNotExist) {
			if _, err = fsat.LstatBelow(x.Root, subDir); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
