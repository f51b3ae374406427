package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	// volumeMode of a new volume's directory: pods run under any uid and all must
	// be able to write, as both predecessors have it. Other volumes are no more
	// reachable for that; the node mounts nothing above this directory. The
	// process must run with umask 0 for the mode to be that.
	volumeMode = 0o777
	parentMode = 0o755
)

// CreateRequest asks for a volume.
type CreateRequest struct {
	Name         string
	Params       volume.Params
	MountOptions []string
	Size         SizeRange
	// Source of the content; nil for an empty volume.
	Source *Source
}

// Created is a volume that exists.
type Created struct {
	ID volume.ID
	// Capacity in bytes, 0 when none was asked for.
	Capacity int64
}

// Create makes the volume, or finds it when an earlier call has made it. A
// directory of the volume's name that no live volume owns is adopted as it is.
//
// Errors: volume.ErrIncompatible when the volume exists with another size or
// other parameters, volume.ErrOwned, volume.ErrInvalid, those of share.Cache.
func (s *Store) Create(ctx context.Context, req CreateRequest) (Created, error) {
	want, err := newRecord(req, time.Now())
	if err != nil {
		return Created{}, err
	}
	if req.Source != nil {
		return s.createFrom(ctx, req, want)
	}
	export := req.Params.Export
	get := func(ctx context.Context) (*share.Handle, error) {
		return s.cfg.Shares.Acquire(ctx, export, req.MountOptions)
	}
	var made Created
	err = s.withVolume(ctx, key{export, want.SubDir}, get, func(ctx context.Context, h *share.Handle) error {
		s.reclaim.resume(export, req.MountOptions)
		return withCatalog(h, func(cat *catalog.Catalog) (err error) {
			made, err = s.create(ctx, h.Root(), cat, want, req.Size)
			return err
		})
	})
	if err != nil {
		return Created{}, fmt.Errorf("create volume %s on %s: %w", req.Name, export, err)
	}
	return made, nil
}

func newRecord(req CreateRequest, now time.Time) (catalog.Record, error) {
	subDir, err := volume.DirName(req.Name)
	if err != nil {
		return catalog.Record{}, err
	}
	capacity, err := req.Size.choose()
	if err != nil {
		return catalog.Record{}, err
	}
	id := volume.ID{Export: req.Params.Export, SubDir: subDir, Name: subDir, OnDelete: volume.OnDeleteDelete}
	return catalog.Record{
		Name: req.Name, ID: id.String(), SubDir: subDir, Capacity: capacity,
		Parameters: req.Params.Shape(), Metadata: req.Params.Metadata,
		OnDelete: id.OnDelete, MountOptions: req.MountOptions, Created: now.UTC(), Source: req.Source.String(),
	}, nil
}

func (s *Store) create(ctx context.Context, root *os.Root, cat *catalog.Catalog, want catalog.Record, size SizeRange) (Created, error) {
	there, err := directoryThere(root, want.SubDir)
	if err != nil {
		return Created{}, err
	}
	rec, isNew, err := s.claim(ctx, cat, want, size)
	if err != nil {
		return Created{}, err
	}
	if !there {
		if err := s.makeVolume(ctx, root, rec.SubDir); err != nil {
			if isNew && ctx.Err() == nil {
				// The caller may give up for good: leave no claim without a directory.
				err = errors.Join(err, cat.Remove(rec.SubDir))
			}
			return Created{}, err
		}
	}
	id, err := volume.ParseID(rec.ID)
	if err != nil {
		return Created{}, fmt.Errorf("record of %s: %w", rec.SubDir, err)
	}
	return Created{ID: id, Capacity: rec.Capacity}, nil
}

func directoryThere(root *os.Root, subDir string) (bool, error) {
	info, err := root.Lstat(subDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, fmt.Errorf("%w: %s is there and is not a directory", volume.ErrOwned, subDir)
	}
	return true, nil
}

// claim makes the record, or returns the one that is there if it is of the same
// request.
func (s *Store) claim(ctx context.Context, cat *catalog.Catalog, want catalog.Record, size SizeRange) (rec catalog.Record, isNew bool, err error) {
	have, err := cat.Read(want.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.newClaim(ctx, cat, want)
		if err == nil {
			return want, true, nil
		}
		if errors.Is(err, fs.ErrExist) { // another controller was faster
			have, err = cat.Read(want.SubDir)
		}
	}
	if err != nil {
		return catalog.Record{}, false, err
	}
	return have, false, sameRequest(have, want, size)
}

func (s *Store) newClaim(ctx context.Context, cat *catalog.Catalog, want catalog.Record) error {
	if err := cat.Conflict(want.SubDir); err != nil {
		return err
	}
	if err := s.step(ctx, "write record"); err != nil {
		return err
	}
	if err := cat.Create(want); err != nil {
		return err
	}
	// Again, now that others see this record: of two controllers that claim a
	// directory and one below it, at least one sees the other.
	if err := cat.Conflict(want.SubDir); err != nil {
		return errors.Join(err, cat.Remove(want.SubDir))
	}
	return nil
}

// sameRequest decides whether the request that made have is the one that wants want.
func sameRequest(have, want catalog.Record, size SizeRange) error {
	switch {
	case have.Name != want.Name:
		return fmt.Errorf("%w: the directory %s is that of volume %s", volume.ErrOwned, have.SubDir, have.Name)
	case !maps.Equal(have.Parameters, want.Parameters):
		return fmt.Errorf("%w: it has the parameters %v, asked for are %v", volume.ErrIncompatible, have.Parameters, want.Parameters)
	case have.Source != want.Source:
		return fmt.Errorf("%w: it was made from %q, asked for is %q", volume.ErrIncompatible, have.Source, want.Source)
	case !size.contains(have.Capacity):
		return fmt.Errorf("%w: it has %d bytes, asked for are %s", volume.ErrIncompatible, have.Capacity, size)
	}
	return nil
}

// makeVolume makes the volume's directory in one step that either leaves it with
// its mode or not at all. It is not made elsewhere and renamed into place: over
// an empty directory rename(2) succeeds, and that could be this very volume,
// made by another controller and mounted by a pod already.
func (s *Store) makeVolume(ctx context.Context, root *os.Root, subDir string) error {
	if err := s.step(ctx, "make directory"); err != nil {
		return err
	}
	if parent := path.Dir(subDir); parent != "." {
		if err := root.MkdirAll(parent, parentMode); err != nil {
			return err
		}
	}
	err := root.Mkdir(subDir, volumeMode)
	if errors.Is(err, fs.ErrExist) {
		_, err = directoryThere(root, subDir)
	}
	if err != nil {
		return err
	}
	return s.step(ctx, "answer")
}
