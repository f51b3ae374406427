package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// createFrom makes a volume with content, or finds it. Its directory is made in
// the catalog's tmp and renamed to its place when it is whole.
//
// Errors besides those of Create: volume.ErrInProgress, volume.ErrNotFound and
// volume.ErrSnapshotNotFound of the source, volume.ErrOutOfRange when it does
// not fit.
func (s *Store) createFrom(ctx context.Context, req CreateRequest, want catalog.Record) (Created, error) {
	export := req.Params.Export
	k := key{export, want.SubDir}
	id, err := volume.ParseID(want.ID)
	if err != nil {
		return Created{}, err
	}
	made, err := runJob(ctx, s, k, id.Name, want.Source, func(ctx context.Context, p *tree.Progress) (made Created, err error) {
		get := func(ctx context.Context) (*share.Handle, error) {
			return s.cfg.Shares.Acquire(ctx, export, req.MountOptions)
		}
		err = s.alone(ctx, k, get, func(ctx context.Context, h *share.Handle) error {
			s.reclaim.resume(export, req.MountOptions)
			return withCatalog(h, func(cat *catalog.Catalog) (err error) {
				made, err = s.createCopy(ctx, h, cat, k, want, req, p)
				return err
			})
		})
		s.reclaim.kick(export, req.MountOptions)
		return made, err
	})
	if err == nil && !req.Size.contains(made.Capacity) {
		err = fmt.Errorf("%w: it has %d bytes, asked for are %s", volume.ErrIncompatible, made.Capacity, req.Size)
	}
	if err != nil {
		return Created{}, fmt.Errorf("create volume %s on %s from %s: %w", req.Name, export, req.Source, err)
	}
	return made, nil
}

func (s *Store) createCopy(ctx context.Context, h *share.Handle, cat *catalog.Catalog, k key, want catalog.Record, req CreateRequest, p *tree.Progress) (Created, error) {
	made, found, err := findWhole(h.Root(), cat, want, req.Size)
	if found {
		// A killed call may have left the operation behind that it had just finished.
		return made, endOperations(cat, k, "")
	}
	if err != nil {
		return Created{}, err
	}
	from, err := s.openSource(ctx, req.Source, h, req.Source.export() == k.export)
	if err != nil {
		// Nor can anybody else go on with it.
		return Created{}, errors.Join(err, endOperations(cat, k, ""), s.unclaim(ctx, h.Root(), cat, k, want))
	}
	defer from.close()
	if want.Capacity, err = from.choose(req.Size); err != nil {
		return Created{}, err
	}
	if want, _, err = s.claim(ctx, cat, want, req.Size); err != nil {
		return Created{}, err
	}
	op, err := s.beginOperation(ctx, cat, k)
	if err == nil {
		err = s.makeCopy(ctx, h.Root(), cat, op, from, want, p)
	}
	if err != nil {
		if op != nil && ctx.Err() == nil {
			err = errors.Join(err, op.end())
		}
		return Created{}, errors.Join(err, s.unclaim(ctx, h.Root(), cat, k, want))
	}
	id, err := volume.ParseID(want.ID)
	if err != nil {
		return Created{}, fmt.Errorf("record of %s: %w", want.SubDir, err)
	}
	return Created{ID: id, Capacity: want.Capacity}, nil
}

// findWhole finds the volume if it was made before. A directory that no volume
// owns is not adopted here: it has other content.
func findWhole(root *os.Root, cat *catalog.Catalog, want catalog.Record, size SizeRange) (made Created, found bool, err error) {
	there, err := directoryThere(root, want.SubDir)
	if err != nil {
		return Created{}, false, err
	}
	have, err := cat.Read(want.SubDir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && there:
		return Created{}, false, fmt.Errorf("%w: the directory %s is there already, with other content", volume.ErrOwned, want.SubDir)
	case errors.Is(err, fs.ErrNotExist):
		return Created{}, false, nil
	case err != nil:
		return Created{}, false, err
	}
	if err := sameRequest(have, want, size); err != nil || !there {
		return Created{}, false, err
	}
	id, err := volume.ParseID(have.ID)
	if err != nil {
		return Created{}, false, fmt.Errorf("record of %s: %w", have.SubDir, err)
	}
	return Created{ID: id, Capacity: have.Capacity}, true, nil
}

// choose the capacity of a volume with this content.
func (c *content) choose(size SizeRange) (int64, error) {
	capacity, err := size.choose()
	if err != nil {
		return 0, err
	}
	least := max(c.bytes, c.capacity)
	if capacity == 0 {
		capacity = least
	}
	if capacity < least || !size.contains(capacity) {
		return 0, fmt.Errorf("%w: the source has %d bytes, asked for are %s", volume.ErrOutOfRange, least, size)
	}
	return capacity, nil
}

func (s *Store) makeCopy(ctx context.Context, root *os.Root, cat *catalog.Catalog, op *operation, from *content, want catalog.Record, p *tree.Progress) error {
	there, err := directoryThere(root, want.SubDir)
	if err != nil {
		return err
	}
	if !there {
		if err := s.step(ctx, "copy"); err != nil {
			return err
		}
		if err := op.fill(ctx, from, s.cfg.CopyWorkers, p); err != nil {
			return err
		}
		if parent := path.Dir(want.SubDir); parent != "." {
			if err := root.MkdirAll(parent, parentMode); err != nil {
				return err
			}
		}
		if err := s.step(ctx, "put copy in its place"); err != nil {
			return err
		}
		// The record may have gone with a delete that did not know of this.
		if _, err := cat.Read(want.SubDir); err != nil {
			return err
		}
		if err := op.place(root, op.data(), want.SubDir); err != nil {
			return err
		}
		// Nor may it go without one, should another controller have failed and taken
		// the record back just now.
		if _, _, err := s.claim(ctx, cat, want, SizeRange{}); err != nil {
			return err
		}
	}
	if err := s.step(ctx, "end copy"); err != nil {
		return err
	}
	if err := op.end(); err != nil {
		return err
	}
	return s.step(ctx, "answer")
}

// unclaim takes the record of a volume back that could not be made, for the
// caller may give up for good. It stays while another controller may be making
// the volume, and when this one is only told to stop.
func (s *Store) unclaim(ctx context.Context, root *os.Root, cat *catalog.Catalog, k key, want catalog.Record) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // as said
	}
	others, err := cat.Temporary(operationKind(k))
	if err != nil || len(others) > 0 {
		return err
	}
	// After that: an operation is there until its directory is.
	there, err := directoryThere(root, want.SubDir)
	if err != nil || there {
		return err
	}
	have, err := cat.Read(want.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || have.Name != want.Name {
		return err
	}
	return cat.Remove(want.SubDir)
}
