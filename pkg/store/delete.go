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

	"golang.org/x/sys/unix"
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
			return nil
		}
	}
	if err != nil {
		return err
	}
	return s.deleteFound(ctx, root, cat, id, rec, recorded)
}

// deleteFound deletes what is there, the record last.
func (s *Store) deleteFound(ctx context.Context, root *os.Root, cat *catalog.Catalog, id volume.ID, rec catalog.Record, recorded bool) error {
	policy := s.policy(rec, id)
	trashed, err := s.dispose(ctx, root, cat, id, policy)
	if err != nil {
		return err
	}
	if recorded {
		// A call can be held up by the network for as long as it likes. If another
		// controller has deleted the volume meanwhile, the directory may have been that
		// of a later one.
		if same, err := unchanged(cat, rec); err != nil || !same {
			return errors.Join(err, putBack(root, cat, trashed, id.SubDir))
		}
	}
	if policy == volume.OnDeleteDelete {
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

// dispose returns what is in the trash for it, if anything is.
func (s *Store) dispose(ctx context.Context, root *os.Root, cat *catalog.Catalog, id volume.ID, policy volume.OnDelete) (trashed string, err error) {
	switch policy {
	case volume.OnDeleteRetain:
		return "", nil
	case volume.OnDeleteArchive:
		return "", s.archive(ctx, root, cat, id)
	}
	return s.trash(ctx, root, cat, id.SubDir)
}

// unchanged tells whether the directory still is that of the volume whose record
// it was; no record is that of nobody.
func unchanged(cat *catalog.Catalog, rec catalog.Record) (bool, error) {
	now, err := cat.Read(rec.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return now.Name == rec.Name && now.Created.Equal(rec.Created), err
}

// putBack takes out of the trash what is another volume's.
func putBack(root *os.Root, cat *catalog.Catalog, trashed, subDir string) error {
	if trashed == "" {
		return nil
	}
	bin, err := cat.Trash()
	if err != nil {
		return err
	}
	to, err := makePlace(root, subDir)
	if err != nil {
		return err
	}
	defer to.close()
	return rename(place{at: bin, name: trashed}, to)
}

// trash moves the directory where the reclaimer finds it, and returns its name
// there. One rename, however much is in it.
func (s *Store) trash(ctx context.Context, root *os.Root, cat *catalog.Catalog, subDir string) (name string, err error) {
	bin, err := cat.Trash()
	if err != nil {
		return "", err
	}
	from, err := openPlace(root, subDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer from.close()
	if from.parent == root {
		from.at = cat.Export()
	}
	if err := s.step(ctx, "move directory to trash"); err != nil {
		return "", err
	}
	for range maxLostRaces {
		name = trashName(subDir, time.Now())
		err = rename(from, place{at: bin, name: name})
		switch {
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, fs.ErrExist):
			continue // another one of the very same name and nanosecond
		case errors.Is(err, fs.ErrNotExist):
			// Gone before, or the reply to a rename that took place was lost.
			if _, err := lstat(root, subDir); errors.Is(err, fs.ErrNotExist) {
				return "", nil
			}
			return "", fmt.Errorf("%w: the directories above %s are being replaced: %w", volume.ErrInProgress, subDir, err)
		}
		return name, err
	}
	return "", err
}

// trashName is for people to recognize and unique by its time.
func trashName(subDir string, now time.Time) string {
	base := path.Base(subDir)
	base = strings.ToValidUTF8(base[:min(len(base), 200)], "")
	return fmt.Sprintf("%s.%d", base, now.UnixNano())
}
