package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Delete ends a volume, by its policy: its directory goes to the trash, whose
// removal takes place later, or is kept. A volume that is gone is no error.
//
// Errors: volume.ErrOwned when the directory belongs to another live volume,
// volume.ErrUnsupported for a policy that would need more than is done here,
// those of share.Cache.
func (s *Store) Delete(ctx context.Context, id volume.ID, mountOptions []string) error {
	if err := volume.CheckSubDir(id.SubDir); err != nil { // never the export itself
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	k, mountOptions := key{id.Export, id.SubDir}, s.options(mountOptions)
	if err := s.copies.cancel(ctx, k, id.Name); err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	err := s.withVolume(ctx, k, s.anyShare(id.Export, mountOptions), func(ctx context.Context, h *share.Handle) error {
		s.reclaim.resume(id.Export, mountOptions)
		return withCatalog(h, func(cat *catalog.Catalog) error {
			if err := s.beforeDelete(cat, k, id); err != nil {
				return err
			}
			return s.delete(ctx, h.Root(), cat, id)
		})
	})
	if err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	s.reclaim.kick(id.Export, mountOptions)
	return nil
}

// beforeDelete keeps what is being copied, and ends the copy that the volume was
// to become, if one was left behind.
func (s *Store) beforeDelete(cat *catalog.Catalog, k key, id volume.ID) error {
	if err := s.copies.free(k); err != nil {
		return err
	}
	rec, err := cat.Read(id.SubDir)
	if err != nil || rec.Source == "" || mayDelete(rec, id) != nil {
		return nil //nolint:nilerr // it is not a volume with content; delete says what it is
	}
	return endOperations(cat, k, "")
}

func (s *Store) delete(ctx context.Context, root *os.Root, cat *catalog.Catalog, id volume.ID) error {
	rec, err := cat.Read(id.SubDir)
	recorded := err == nil
	switch {
	case recorded:
		err = mayDelete(rec, id)
	case errors.Is(err, fs.ErrNotExist):
		// Made by a predecessor. It may still lie around or within a volume that
		// has a record and must not take that with it.
		err = cat.Conflict(id.SubDir)
	}
	if err != nil {
		return err
	}
	switch policy(rec, id) {
	case volume.OnDeleteArchive:
		return fmt.Errorf("%w: onDelete archive; nothing was changed", volume.ErrUnsupported)
	case volume.OnDeleteDelete:
		if err := s.trash(ctx, root, cat, id.SubDir); err != nil {
			return err
		}
	case volume.OnDeleteRetain:
	}
	// Last: as long as there is something that a repeated call must do, there is
	// the record, and nobody can adopt the directory.
	if err := s.step(ctx, "remove record"); err != nil || !recorded {
		return err
	}
	return cat.Remove(id.SubDir)
}

// mayDelete decides whether the volume that owns the directory is the one that
// is to be deleted, and not one that came to own it later.
func mayDelete(rec catalog.Record, id volume.ID) error {
	owner, err := volume.ParseID(rec.ID)
	if err != nil {
		return fmt.Errorf("record of %s: %w", rec.SubDir, err)
	}
	if owner.Name != id.Name {
		return fmt.Errorf("%w: %s is now that of volume %s", volume.ErrOwned, id.SubDir, rec.Name)
	}
	return nil
}

// policy of the volume: its record is newer than its ID, and where neither says,
// the default of both predecessors' drivers counts.
func policy(rec catalog.Record, id volume.ID) volume.OnDelete {
	for _, p := range []volume.OnDelete{rec.OnDelete, id.OnDelete} {
		if p != "" {
			return p
		}
	}
	return volume.OnDeleteDelete
}

// trash moves the directory where the reclaimer finds it. One rename, however
// much is in it.
func (s *Store) trash(ctx context.Context, root *os.Root, cat *catalog.Catalog, subDir string) error {
	if err := cat.Meta().MkdirAll(catalog.TrashDir, 0o700); err != nil {
		return err
	}
	if err := s.step(ctx, "move directory to trash"); err != nil {
		return err
	}
	for {
		to := path.Join(volume.MetaDir, catalog.TrashDir, trashName(subDir, time.Now()))
		err := root.Rename(subDir, to)
		switch {
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, fs.ErrExist):
			continue // another one of the very same name and nanosecond
		case errors.Is(err, fs.ErrNotExist):
			// Gone before, or the reply to a rename that took place was lost.
			if _, err := root.Lstat(subDir); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		}
		return err
	}
}

// trashName is for people to recognize and unique by its time.
func trashName(subDir string, now time.Time) string {
	base := path.Base(subDir)
	base = strings.ToValidUTF8(base[:min(len(base), 200)], "")
	return fmt.Sprintf("%s.%d", base, now.UnixNano())
}
