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

// archive quarantines the directory, then renames it to an unused name beside its old
// path.
func (d *Deletion) archive(ctx context.Context) (owned bool, err error) {
	_, owned, err = d.quarantineOwned(ctx, catalog.KeptKind)
	if err != nil || !owned {
		return false, err
	}
	return true, d.finishArchive(ctx)
}

// finishArchive archives all that is quarantined, including by a call that was killed.
func (d *Deletion) finishArchive(ctx context.Context) error {
	names, err := d.Cat.Quarantined(catalog.KeptKind, d.ID.SubDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := d.archiveQuarantined(ctx, path.Base(name)); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return releaseReservation(d.Session, d.ID)
	}
	return nil
}

// archiveQuarantined reserves a name with a record during the rename: rename(2) would
// replace an empty directory, which could be a new volume.
func (d *Deletion) archiveQuarantined(ctx context.Context, name string) error {
	temp, _, err := d.Cat.Temp("")
	if err != nil {
		return err
	}
	for subDir := range archiveNames(d.ID) {
		if err := d.Step(ctx, "reserve archive"); err != nil {
			return err
		}
		reservation, err := reserve(d.Cat, subDir, d.ID)
		if err != nil {
			return err
		}
		if reservation.SubDir == "" {
			continue
		}
		archived, err := d.archiveAs(ctx, fsat.Place{At: temp, Name: name}, subDir)
		if err == nil {
			err = d.Step(ctx, "release archive")
		}
		if err == nil {
			err = d.Cat.Remove(reservation)
		}
		if err != nil || archived {
			return err
		}
	}
	return fmt.Errorf("archive %s: all %d names are in use", d.ID.SubDir, maxArchives)
}

// archiveAs renames the directory unless the name exists.
func (d *Deletion) archiveAs(ctx context.Context, from fsat.Place, subDir string) (archived bool, err error) {
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

// reserve writes a record for the name of an archive. It returns an empty record if the
// name belongs to a live volume.
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
	case errors.Is(err, volume.ErrOwned): // since the check
		return catalog.Record{}, nil
	case !errors.Is(err, fs.ErrExist):
		return catalog.Record{}, err
	}
	have, err := cat.Read(subDir)
	if err != nil || !isReservation(have, id) {
		return catalog.Record{}, fsat.IgnoreNotExist(err)
	}
	return have, nil
}

// isReservation reports whether the record reserves an archive name for this volume.
func isReservation(rec catalog.Record, id volume.ID) bool {
	of, err := volume.ParseID(rec.ArchiveOf)
	return rec.ArchiveOf != "" && err == nil && of.Export == id.Export && of.SubDir == id.SubDir && of.Name == id.Name
}

// releaseReservation removes the reservation of a call that was killed after its rename.
// There is at most one, after names that are all in use.
func releaseReservation(x *session.Session, id volume.ID) error {
	for subDir := range archiveNames(id) {
		rec, err := x.Cat.Read(subDir)
		if err == nil && isReservation(rec, id) {
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

// maxArchives bounds the archives with the same directory and volume name.
const maxArchives = 1 << 16

// archiveNames are the candidates for the archive, in order: archived-NAME as in
// csi-driver-nfs, then with the volume's name, then with a number.
func archiveNames(id volume.ID) iter.Seq[string] {
	dir, base := path.Dir(id.SubDir), path.Base(id.SubDir)
	return func(yield func(string) bool) {
		if !yield(path.Join(dir, volumes.ArchivePrefix+truncate(base, 240))) {
			return
		}
		name := volumes.ArchivePrefix + truncate(base, 110) + "." + truncate(id.Name, 110)
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

// truncate shortens a name to at most n bytes of whole characters.
func truncate(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }
