package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Claim is the creation of one volume. It takes the record, which reserves the directory,
// confirms it against concurrent claims and then creates the directory. A call that fails
// rolls its claim back, unless another call may have resumed it.
type Claim struct {
	*session.Session
	req  Request
	want catalog.Record // requested
	// busy returns an error while a volume is the source or the target of a copy.
	busy func(session.Key) error

	rec   catalog.Record // in the catalog, once taken
	isNew bool           // this call created rec
}

// NewClaim returns the claim of a request and its record, want, in an open session.
func NewClaim(x *session.Session, req Request, want catalog.Record, busy func(session.Key) error) *Claim {
	return &Claim{Session: x, req: req, want: want, busy: busy}
}

// Record returns the record that Take created or found.
func (c *Claim) Record() catalog.Record { return c.rec }

// Take creates the record, or finds the existing one.
//
// Errors: volume.ErrOwned if it belongs to another volume, volume.ErrIncompatible if the
// request was a different one.
func (c *Claim) Take(ctx context.Context) error {
	have, err := c.Cat.Read(c.want.SubDir)
	for range fsat.MaxLostRaces {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		err = c.write(ctx)
		if err == nil {
			c.rec, c.isNew = c.want, true
			return nil
		}
		if errors.Is(err, fs.ErrExist) { // another controller created it, and may have deleted it since
			have, err = c.Cat.Read(c.want.SubDir)
		}
	}
	if err == nil {
		err = SameRequest(have, c.want, c.req.Size)
	}
	if err == nil {
		_, err = Of(have) // before anything is made for a record without a valid ID
	}
	if err == nil {
		c.rec, c.isNew = have, false
	}
	return err
}

// write reserves the volume's name, then creates the record.
func (c *Claim) write(ctx context.Context) error {
	if err := c.checkFree(ctx); err != nil {
		return err
	}
	if err := reserveName(ctx, c.Session, c.want); err != nil {
		return err
	}
	if err := c.Step(ctx, "write record"); err != nil {
		return err
	}
	err := c.Cat.Create(c.want)
	if err == nil && (c.want.Adopted || !nameIsDirectory(c.want)) {
		if err = c.Step(ctx, "look for the directory's next volume"); err == nil {
			err = c.checkReuseNote()
		}
		if err != nil {
			err = errors.Join(err, c.Cat.Remove(c.want))
		}
	}
	if err != nil {
		return errors.Join(err, releaseName(c.Cat, c.want))
	}
	return nil
}

// checkFree returns an error if the volume may not have the directory.
func (c *Claim) checkFree(ctx context.Context) error {
	if c.want.Shared == catalog.SharedVolume {
		return nil // has no directory of its own
	}
	if !nameIsDirectory(c.want) { // before a name is reserved for a volume that cannot exist
		if err := c.Cat.CheckNotNested(c.want.SubDir); err != nil {
			return err
		}
	}
	if c.want.Adopted {
		if err := c.checkReuseNote(); err != nil {
			return err
		}
		if err := c.checkAdoptable(ctx); err != nil {
			return err
		}
	}
	if !c.want.Adopted && path.Dir(c.want.SubDir) == "." {
		return nil
	}
	if c.want.Shared == "" { // a shared directory stays where it is
		if err := c.CheckFileSystem(c.want.SubDir); err != nil {
			return err
		}
	}
	return c.Cat.CheckNotNestedExport(c.want.SubDir)
}

// revalidate rolls back a record created for a directory that another controller was
// deleting: a delete quarantines the directory first and removes the record last.
func (c *Claim) revalidate() error {
	exists, _, err := fsat.DirectoryNow(c.Root, c.rec.SubDir)
	if err == nil && exists {
		return nil
	}
	err = cmp.Or(err, fmt.Errorf("%w: the directory was deleted concurrently", volume.ErrInProgress))
	return errors.Join(err, TakeBack(c.Session, c.rec))
}

// restoreRecord ensures that the directory just created has a record: the call that
// created the record may have failed and rolled it back meanwhile. A delete has removed
// the directory before the record; then the record must not come back either.
func (c *Claim) restoreRecord(ctx context.Context) error {
	if err := c.Retake(ctx); err != nil || !c.isNew {
		return err
	}
	return c.revalidate()
}

// Retake creates the record again if another call has rolled it back meanwhile.
func (c *Claim) Retake(ctx context.Context) error {
	c.want = c.rec
	return c.Take(ctx)
}

// yieldName rolls back a claim whose name has another directory. A record of an earlier
// call may belong to a volume that exists or is being created: it stays, unless the
// volume exists in the other directory.
func (c *Claim) yieldName(ctx context.Context, why error) error {
	switch {
	case ctx.Err() != nil, !c.isNew && !errors.Is(why, volume.ErrIncompatible):
		return nil //nolint:nilerr // the claim stays
	case c.isNew && c.rec.Adopted, c.rec.Shared == catalog.SharedVolume:
		return forget(c.Session, c.rec)
	}
	return TakeBack(c.Session, c.rec)
}

// TakeBack rolls back the claim that took the record, unless its directory exists.
func TakeBack(x *session.Session, rec catalog.Record) error {
	if exists, _, err := fsat.Directory(x.Root, rec.SubDir); exists || err != nil {
		return err // another controller created it
	}
	return errors.Join(fsat.Prune(x.Root, rec.SubDir), forget(x, rec))
}

// forget removes the reservation of the name, then the record.
func forget(x *session.Session, rec catalog.Record) error {
	v, err := Of(rec)
	if err != nil {
		return err
	}
	if err := ForgetName(x.Cat, rec, v.ID); err != nil {
		return err
	}
	return x.Cat.Remove(rec)
}
