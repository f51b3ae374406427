package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// claim makes the record, or returns the one that is there if it is of the same
// request.
func (c *creation) claim(ctx context.Context) (rec catalog.Record, isNew bool, err error) {
	have, err := c.Cat.Read(c.want.SubDir)
	for range fsat.MaxLostRaces {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		err = c.newClaim(ctx)
		if err == nil {
			return c.want, true, nil
		}
		if errors.Is(err, fs.ErrExist) { // another controller was faster, or even deletes it again
			have, err = c.Cat.Read(c.want.SubDir)
		}
	}
	if err != nil {
		return catalog.Record{}, false, err
	}
	return have, false, sameRequest(have, c.want, c.req.Size)
}

// firstClaim is claim with a draft that is written already, or with none. With one
// it does not look for a record first, as there is no directory: if there is one,
// the server says so when another is made.
func (c *creation) firstClaim(ctx context.Context, draft *catalog.Draft) (rec catalog.Record, isNew bool, err error) {
	if draft == nil {
		return c.claim(ctx)
	}
	if err := c.Step(ctx, "place record"); err != nil {
		return catalog.Record{}, false, errors.Join(err, c.Cat.Drop(draft))
	}
	err = c.Cat.Publish(draft)
	switch {
	case err == nil:
		return c.want, true, nil
	case errors.Is(err, fs.ErrExist):
		return c.claim(ctx)
	}
	return catalog.Record{}, false, err
}

func (c *creation) newClaim(ctx context.Context) error {
	if err := c.freePlace(ctx); err != nil {
		return err
	}
	if err := nameIt(ctx, c.Session, c.want); err != nil {
		return err
	}
	if err := c.Step(ctx, "write record"); err != nil {
		return err
	}
	err := c.Cat.Create(c.want)
	if err == nil && (c.want.Adopted || !namedAsItsDirectory(c.want)) {
		if err = c.Step(ctx, "look for the directory's next volume"); err == nil {
			err = c.spareReuse()
		}
		if err != nil {
			err = errors.Join(err, c.Cat.Remove(c.want))
		}
	}
	if err != nil {
		return errors.Join(err, unname(c.Cat, c.want))
	}
	return nil
}

// freePlace returns an error where the directory is not the volume's to have.
func (c *creation) freePlace(ctx context.Context) error {
	if c.want.Shared == catalog.SharedVolume {
		return nil // it has none
	}
	if !namedAsItsDirectory(c.want) { // before a note is left of a volume that cannot be
		if err := c.Cat.CheckNotNested(c.want.SubDir); err != nil {
			return err
		}
	}
	if c.want.Adopted {
		if err := c.spareReuse(); err != nil {
			return err
		}
		if err := c.mayAdopt(ctx); err != nil {
			return err
		}
	}
	if c.want.Adopted || path.Dir(c.want.SubDir) != "." {
		return c.Cat.CheckNotNestedExport(c.want.SubDir)
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
	case have.Shared != want.Shared:
		return ownedShared(have, want)
	case have.Shared == catalog.SharedDirectory:
		return nil
	case have.Name != want.Name:
		return owned(have, want)
	case !maps.Equal(have.Parameters, want.Parameters):
		return fmt.Errorf("%w: it has the parameters %v, asked for are %v", volume.ErrIncompatible, have.Parameters, want.Parameters)
	case have.Source != want.Source:
		return fmt.Errorf("%w: it was made from %q, asked for is %q", volume.ErrIncompatible, have.Source, want.Source)
	case !size.contains(have.Capacity):
		return fmt.Errorf("%w: it has %d bytes, asked for are %s", volume.ErrIncompatible, have.Capacity, size)
	}
	return nil
}
