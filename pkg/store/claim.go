package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// claim makes the record, or returns the one that is there if it is of the same
// request.
func (s *Store) claim(ctx context.Context, cat *catalog.Catalog, want catalog.Record, size SizeRange) (rec catalog.Record, isNew bool, err error) {
	have, err := cat.Read(want.SubDir)
	for range maxLostRaces {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		err = s.newClaim(ctx, cat, want)
		if err == nil {
			return want, true, nil
		}
		if errors.Is(err, fs.ErrExist) { // another controller was faster, or even deletes it again
			have, err = cat.Read(want.SubDir)
		}
	}
	if err != nil {
		return catalog.Record{}, false, err
	}
	return have, false, sameRequest(have, want, size)
}

// firstClaim is claim with a draft that is written already, or with none. With one
// it does not look for a record first, as there is no directory: if there is one,
// the server says so when another is made.
func (s *Store) firstClaim(ctx context.Context, cat *catalog.Catalog, want catalog.Record, size SizeRange, draft *catalog.Draft) (rec catalog.Record, isNew bool, err error) {
	if draft == nil {
		return s.claim(ctx, cat, want, size)
	}
	if err := s.step(ctx, "place record"); err != nil {
		return catalog.Record{}, false, errors.Join(err, cat.Drop(draft))
	}
	err = cat.Publish(draft)
	switch {
	case err == nil:
		return want, true, nil
	case errors.Is(err, fs.ErrExist):
		return s.claim(ctx, cat, want, size)
	}
	return catalog.Record{}, false, err
}

func (s *Store) newClaim(ctx context.Context, cat *catalog.Catalog, want catalog.Record) error {
	if !namedAsItsDirectory(want) { // before a note is left of a volume that cannot be
		if err := cat.Conflict(want.SubDir); err != nil {
			return err
		}
	}
	if want.Adopted || path.Dir(want.SubDir) != "." {
		if err := cat.Shared(want.SubDir); err != nil {
			return err
		}
	}
	if err := s.nameIt(ctx, cat, want); err != nil {
		return err
	}
	if err := s.step(ctx, "write record"); err != nil {
		return err
	}
	if err := cat.Create(want); err != nil {
		return errors.Join(err, unname(cat, want))
	}
	return nil
}

// forget removes the record and what leads to it, the record last.
func forget(cat *catalog.Catalog, rec catalog.Record, id volume.ID) error {
	if err := forgetName(cat, rec, id); err != nil {
		return err
	}
	return cat.Remove(rec)
}

func forgetName(cat *catalog.Catalog, rec catalog.Record, id volume.ID) error {
	if id.Name == rec.SubDir {
		return nil
	}
	return cat.ForgetDirectoryOf(id.Name, rec.SubDir)
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
