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

// Claim is what a volume has of the directory that it asks for: nothing, then the
// record, which keeps others from the directory, then, once that is confirmed, the
// directory. A call that fails takes back what it claimed, unless another one may have
// gone on with it.
type Claim struct {
	*session.Session
	req  Request
	want catalog.Record // of what is asked for
	// busy returns an error while a copy is made of a volume, or is to become one.
	busy func(session.Key) error

	rec   catalog.Record // that is there
	id    volume.ID      // that the record has
	isNew bool           // this call has made the record
}

// NewClaim returns the claim of a request, whose record is want, in an open session.
func NewClaim(x *session.Session, req Request, want catalog.Record, busy func(session.Key) error) *Claim {
	return &Claim{Session: x, req: req, want: want, busy: busy}
}

// Record that is there, once it has been taken.
func (c *Claim) Record() catalog.Record { return c.rec }

// Take makes the record, or finds the one that is there.
//
// Errors: volume.ErrOwned where it is of another volume, volume.ErrIncompatible where it
// is of another request.
func (c *Claim) Take(ctx context.Context) error {
	have, err := c.Cat.Read(c.want.SubDir)
	for range fsat.MaxLostRaces {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		err = c.write(ctx)
		if err == nil {
			return c.took(c.want, true)
		}
		if errors.Is(err, fs.ErrExist) { // another controller was faster, or even deletes it again
			have, err = c.Cat.Read(c.want.SubDir)
		}
	}
	if err == nil {
		err = SameRequest(have, c.want, c.req.Size)
	}
	if err != nil {
		return err
	}
	return c.took(have, false)
}

func (c *Claim) took(rec catalog.Record, isNew bool) (err error) {
	c.rec, c.isNew = rec, isNew
	c.id, err = idOf(rec)
	return err
}

// takeDrafted is Take with a draft that is written already, or with none. With one it
// does not look for a record first, as there is no directory: if there is one, the
// server says so when another is made.
func (c *Claim) takeDrafted(ctx context.Context, draft *catalog.Draft) error {
	if draft == nil {
		return c.Take(ctx)
	}
	if err := c.Step(ctx, "place record"); err != nil {
		return errors.Join(err, c.Cat.Drop(draft))
	}
	err := c.Cat.Publish(draft)
	if errors.Is(err, fs.ErrExist) {
		return c.Take(ctx)
	}
	if err != nil {
		return err
	}
	return c.took(c.want, true)
}

// write makes the record, and before it the note that leads from the volume's name to it.
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
	if err == nil && (c.want.Adopted || !namedAsItsDirectory(c.want)) {
		if err = c.Step(ctx, "look for the directory's next volume"); err == nil {
			err = c.spareReuse()
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

// checkFree returns an error where the directory is not the volume's to have.
func (c *Claim) checkFree(ctx context.Context) error {
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

// confirm looks, now that there is the record, whether it may stay. The directory was
// there before it, or was not.
func (c *Claim) confirm(ctx context.Context, there bool) error {
	if c.isNew && there {
		if err := c.revalidate(); err != nil {
			return err
		}
	}
	if !c.isNew && there && !c.rec.Adopted || c.rec.Shared == catalog.SharedDirectory {
		return nil
	}
	if !c.isNew && c.rec.Adopted && c.rec.ReusedFrom == "" {
		if err := c.notPromised(); err != nil {
			return err
		}
	}
	if err := c.CheckOnlyOne(ctx); err != nil {
		return errors.Join(err, c.giveWay(ctx, err))
	}
	return nil
}

// revalidate takes back a record that was made for a directory which another controller
// was deleting: it quarantines the directory first and removes the record last, which
// was gone just now.
func (c *Claim) revalidate() error {
	there, _, err := fsat.DirectoryNow(c.Root, c.rec.SubDir)
	if err == nil && there {
		return nil
	}
	err = cmp.Or(err, fmt.Errorf("%w: the directory was deleted at the same time", volume.ErrInProgress))
	return errors.Join(err, c.TakeBack())
}

// restore sees to it that a directory just made has its record: whoever made that may
// have failed and taken it back meanwhile. A delete has done the same with the directory
// before it; then there must not be a record either.
func (c *Claim) restore(ctx context.Context) error {
	c.want = c.rec
	if err := c.Take(ctx); err != nil || !c.isNew {
		return err
	}
	return c.revalidate()
}

// giveWay takes back a claim that is not the only one of its name. One that is not new
// may be that of a volume which has been made, or which a controller is about to make;
// then it stays, unless the other one has been made.
func (c *Claim) giveWay(ctx context.Context, why error) error {
	switch {
	case ctx.Err() != nil, !c.isNew && !errors.Is(why, volume.ErrIncompatible):
		return nil //nolint:nilerr // the claim stays
	case c.isNew && c.rec.Adopted, c.rec.Shared == catalog.SharedVolume:
		return forget(c.Session, c.rec)
	}
	return c.TakeBack()
}

// TakeBack takes back what was made for a volume whose directory cannot be made.
func (c *Claim) TakeBack() error { return TakeBack(c.Session, c.rec) }

// TakeBack is Claim.TakeBack for a record that is there.
func TakeBack(x *session.Session, rec catalog.Record) error {
	if there, _, err := fsat.Directory(x.Root, rec.SubDir); there || err != nil {
		return err // another controller has made it
	}
	return errors.Join(fsat.Prune(x.Root, rec.SubDir), forget(x, rec))
}

// forget removes the record and what leads to it, the record last.
func forget(x *session.Session, rec catalog.Record) error {
	id, err := idOf(rec)
	if err != nil {
		return err
	}
	if err := ForgetName(x.Cat, rec, id); err != nil {
		return err
	}
	return x.Cat.Remove(rec)
}
