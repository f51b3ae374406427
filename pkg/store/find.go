package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Get finds a volume: by its record, or one of a predecessor by its directory.
//
// Errors: volume.ErrNotFound, those of share.Cache.
func (s *Store) Get(ctx context.Context, id volume.ID, mountOptions []string) (Created, error) {
	found := Created{ID: id}
	err := s.withRecord(ctx, id, mountOptions, func(_ context.Context, _ *session.Session, rec catalog.Record) error {
		found.Capacity = rec.Capacity
		return nil
	})
	if err != nil {
		return Created{}, fmt.Errorf("get volume %s: %w", id, err)
	}
	return found, nil
}

// Expand notes a larger size of the volume, at least as much as is required. The
// volume itself has no size of its own. That of a predecessor, which has no
// record, is the caller's to remember.
//
// Errors: volume.ErrNotFound, volume.ErrOutOfRange, volume.ErrInvalid, those of
// share.Cache.
func (s *Store) Expand(ctx context.Context, id volume.ID, size SizeRange, mountOptions []string) (capacity int64, err error) {
	required, err := size.choose()
	if err == nil && size == (SizeRange{}) {
		err = fmt.Errorf("%w: no capacity range", volume.ErrInvalid)
	}
	if err == nil {
		err = s.withRecord(ctx, id, mountOptions, func(ctx context.Context, x *session.Session, rec catalog.Record) error {
			capacity = max(rec.Capacity, required)
			if size.Limit > 0 && capacity > size.Limit {
				return fmt.Errorf("%w: it has %d bytes already, the limit is %d", volume.ErrOutOfRange, capacity, size.Limit)
			}
			if rec.Name == "" || capacity == rec.Capacity {
				return nil
			}
			rec.Capacity = capacity
			return replace(ctx, x, rec)
		})
	}
	if err != nil {
		return 0, fmt.Errorf("expand volume %s: %w", id, err)
	}
	return capacity, nil
}

// Modify changes what may be changed of a volume. That of a predecessor gets a
// record to keep it in.
//
// Errors: volume.ErrNotFound, volume.ErrRefused, volume.ErrOwned, those of
// share.Cache.
func (s *Store) Modify(ctx context.Context, id volume.ID, change volume.Mutable, mountOptions []string) error {
	err := s.withRecord(ctx, id, mountOptions, func(ctx context.Context, x *session.Session, rec catalog.Record) error {
		if change == (volume.Mutable{}) {
			return nil
		}
		if rec.Shared != "" {
			return errShapeless()
		}
		if err := note(ctx, x, id, rec, change); err != nil || change.Mode == 0 {
			return err
		}
		if err := x.Step(ctx, "change mode"); err != nil {
			return err
		}
		return chmod(x.Root, id.SubDir, change.Mode)
	})
	if err != nil {
		return fmt.Errorf("modify volume %s: %w", id, err)
	}
	return nil
}

// note writes the change into the volume's record.
func note(ctx context.Context, x *session.Session, id volume.ID, rec catalog.Record, change volume.Mutable) error {
	isNew := rec.Name == ""
	if isNew {
		if err := x.Records().CheckNotNested(id.SubDir); err != nil {
			return err
		}
		rec = catalog.Record{
			Name: id.Name, ID: id.String(), SubDir: id.SubDir, Adopted: true, OnDelete: id.OnDelete,
			Parameters: volume.Params{Export: id.Export}.Shape(), Created: time.Now().UTC(),
		}
	}
	if change.OnDelete != "" {
		rec.OnDelete = change.OnDelete
	}
	if change.Mode != 0 {
		rec.Mode = change.Mode
	}
	if !isNew {
		return replace(ctx, x, rec)
	}
	if err := x.Step(ctx, "write record"); err != nil {
		return err
	}
	if err := x.Open(); err != nil {
		return err
	}
	return x.Cat.Create(rec)
}

func replace(ctx context.Context, x *session.Session, rec catalog.Record) error {
	if err := x.Step(ctx, "replace record"); err != nil {
		return err
	}
	return x.Cat.Replace(rec)
}

func chmod(root *os.Root, subDir string, mode volume.Mode) error {
	p, err := fsat.OpenPlace(root, subDir)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Chmod(mode)
}

// withRecord runs job alone on a volume that exists, with its record, or with an
// empty one for a volume of a predecessor. Without a record there may be no catalog.
func (s *Store) withRecord(ctx context.Context, id volume.ID, mountOptions []string,
	job func(context.Context, *session.Session, catalog.Record) error,
) error {
	if err := volume.CheckSubDir(id.SubDir); err != nil {
		return err
	}
	return s.exports.View(ctx, s.anyShare(id.Export, id.SubDir, mountOptions), func(ctx context.Context, x *session.Session) error {
		rec, err := find(x, id)
		if err != nil {
			return err
		}
		return job(ctx, x, rec)
	})
}

func find(x *session.Session, id volume.ID) (catalog.Record, error) {
	rec, err := x.Records().Read(id.SubDir)
	if err == nil && rec.Shared == catalog.SharedDirectory {
		rec, err = sharedRecord(x.Records(), id)
	}
	if err == nil {
		owner, err := volume.ParseID(rec.ID)
		if err == nil && (owner.Name != id.Name || !rec.IsVolume()) {
			err = fmt.Errorf("%w: its directory is that of %s", volume.ErrNotFound, rec.ID)
		}
		if err == nil {
			err = exists(x.Root, rec)
		}
		return rec, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return catalog.Record{}, err
	}
	there, _, err := fsat.Directory(x.Root, id.SubDir)
	if err == nil && !there {
		err = fmt.Errorf("%w: %s", volume.ErrNotFound, id.Export.Source(id.SubDir))
	}
	return catalog.Record{}, err
}

func exists(root *os.Root, rec catalog.Record) error {
	coming, err := pending(root, rec)
	if err == nil && coming {
		err = fmt.Errorf("%w: %s is still being made", volume.ErrNotFound, rec.SubDir)
	}
	return err
}
