package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Delete ends a volume, by its policy: its directory goes to the trash, whose
// removal takes place later, is kept, or is kept under another name. A volume
// that is gone is no error, also when its directory has become that of another.
//
// Errors: volume.ErrOwned when the directory holds or lies in another live
// volume, those of share.Cache.
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
			if err := s.copies.free(k); err != nil {
				return err
			}
			return s.delete(ctx, h.Root(), cat, k, id)
		})
	})
	if err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	s.known.forget(id)
	s.reclaim.kick(id.Export, mountOptions)
	return nil
}

func (s *Store) delete(ctx context.Context, root *os.Root, cat *catalog.Catalog, k key, id volume.ID) error {
	rec, err := cat.Read(id.SubDir)
	recorded := err == nil
	switch {
	case recorded:
		var owner volume.ID
		if owner, err = volume.ParseID(rec.ID); err != nil {
			return fmt.Errorf("record of %s: %w", rec.SubDir, err)
		}
		if owner.Name != id.Name || rec.ArchiveOf != "" {
			klog.FromContext(ctx).Info("The volume is gone and its directory is another's: nothing deleted", "id", id.String(), "owner", rec.ID)
			return nil
		}
		if rec.Source != "" { // the copy that it was to become may have been left behind
			err = endOperations(cat, k, "")
		}
	case errors.Is(err, fs.ErrNotExist):
		// Made by a predecessor, or gone. A file or a symlink is no volume.
		var there bool
		if there, _, err = directoryThere(root, id.SubDir); there {
			// It may lie around or within a volume that has a record and must not take
			// that with it.
			err = cat.Conflict(id.SubDir)
		} else if err == nil {
			if s.policy(rec, id) == volume.OnDeleteArchive {
				return dropReservations(root, cat, id)
			}
			return finishTaken(cat, k)
		}
	}
	if err != nil {
		return err
	}
	return s.deleteFound(ctx, root, cat, k, id, rec, recorded)
}

// deleteFound deletes what is there, the record last.
func (s *Store) deleteFound(ctx context.Context, root *os.Root, cat *catalog.Catalog, k key, id volume.ID, rec catalog.Record, recorded bool) error {
	policy := s.policy(rec, id)
	taken, err := s.dispose(ctx, root, cat, k, id, policy)
	if err != nil {
		return err
	}
	if recorded || taken != "" {
		// A call can be held up by the network for as long as it likes. If another
		// controller has deleted the volume meanwhile, the directory may have been that
		// of a later one.
		if same, err := unchanged(cat, id.SubDir, rec, recorded); err != nil || !same {
			return errors.Join(err, putBack(root, cat, taken, id.SubDir))
		}
	}
	if policy == volume.OnDeleteDelete {
		if err := s.discardTaken(ctx, cat, k, taken); err != nil {
			return err
		}
		if err := s.step(ctx, "prune parents"); err != nil {
			return err
		}
		if err := prune(root, id.SubDir); err != nil {
			return err
		}
	}
	// Last: as long as there is something that a repeated call must do, there is
	// the record, and nobody can adopt the directory.
	if err := s.step(ctx, "remove record"); err != nil || !recorded {
		return err
	}
	return forget(cat, id.SubDir, id)
}

// policy of the volume: its record is newer than its ID, which is older than
// what the driver's default is now.
func (s *Store) policy(rec catalog.Record, id volume.ID) volume.OnDelete {
	return cmp.Or(rec.OnDelete, id.OnDelete, s.cfg.OnDelete, volume.OnDeleteDelete)
}

// dispose returns the name under which the directory was taken, if it was.
func (s *Store) dispose(ctx context.Context, root *os.Root, cat *catalog.Catalog, k key, id volume.ID, policy volume.OnDelete) (taken string, err error) {
	switch policy {
	case volume.OnDeleteRetain:
		return "", nil
	case volume.OnDeleteArchive:
		return "", s.archive(ctx, root, cat, id)
	}
	return s.take(ctx, root, cat, k)
}

// unchanged tells whether the directory still is that of the volume whose record
// it was, or of none; no record now is that of nobody.
func unchanged(cat *catalog.Catalog, subDir string, rec catalog.Record, recorded bool) (bool, error) {
	now, err := cat.Read(subDir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return recorded && now.Name == rec.Name && now.Created.Equal(rec.Created), err
}

// trashName is for people to recognize and unique by its time.
func trashName(subDir string, now time.Time) string {
	base := path.Base(subDir)
	base = strings.ToValidUTF8(base[:min(len(base), 200)], "")
	return fmt.Sprintf("%s.%d", base, now.UnixNano())
}
