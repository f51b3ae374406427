package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Volume is an existing volume.
type Volume struct {
	ID volume.ID
	// Capacity in bytes, 0 if the request set none.
	Capacity int64
}

// Of returns the volume of a record.
func Of(rec catalog.Record) (Volume, error) {
	id, err := volume.ParseID(rec.ID)
	if err != nil {
		return Volume{}, fmt.Errorf("record of %s: %w", rec.SubDir, err)
	}
	return Volume{ID: id, Capacity: rec.Capacity}, nil
}

// Make creates the volume, or finds the one that an earlier call created. A directory of
// the volume's name that no volume owns is adopted unchanged.
//
// Errors: volume.ErrIncompatible if the volume exists with another size or other
// parameters, volume.ErrOwned, volume.ErrNotAdopted, volume.ErrInProgress.
func (c *Claim) Make(ctx context.Context) (Volume, error) {
	if c.want.Shared == catalog.SharedVolume {
		return c.makeShared(ctx)
	}
	exists, info, draft, err := c.statAndDraft(ctx)
	if err != nil {
		return Volume{}, err
	}
	c.want.Adopted = exists
	if err := c.reuse(ctx); err != nil {
		return Volume{}, err
	}
	if err := c.takeDraft(ctx, draft); err != nil {
		return Volume{}, err
	}
	if err := c.confirm(ctx, exists); err != nil {
		return Volume{}, err
	}
	made, err := Of(c.rec)
	if err != nil {
		return Volume{}, err
	}
	unfinished := exists && isUnfinished(c.rec, info)
	switch {
	case !exists || unfinished:
		return made, c.complete(ctx, unfinished)
	case c.rec.Adopted: // from now on the record names the owner
		return made, c.Cat.ForgetRetained(c.rec)
	}
	return made, nil
}

// statAndDraft looks for the directory. It probably does not exist, so a draft of its
// record is written concurrently if the directory has the volume's name.
func (c *Claim) statAndDraft(ctx context.Context) (exists bool, info fs.FileInfo, draft *catalog.Draft, err error) {
	var draftErr error
	drafted := make(chan struct{})
	if nameIsDirectory(c.want) && !c.req.Params.Reuse {
		if err := c.Step(ctx, "write record"); err != nil {
			return false, nil, nil, err
		}
		go func() {
			defer close(drafted)
			draftErr = session.Recover(ctx, func() (err error) {
				draft, err = c.Cat.Draft(c.want)
				return err
			})
		}()
	} else {
		close(drafted)
	}
	exists, info, err = fsat.Directory(c.Root, c.want.SubDir)
	<-drafted
	if err == nil && !exists {
		return false, nil, draft, draftErr
	}
	if draft != nil {
		err = errors.Join(err, c.Cat.Drop(draft))
	}
	if err == nil { // the answer may come from the client's cache; mkdir(2) asks the server
		exists, info, err = fsat.DirectoryNow(c.Root, c.want.SubDir)
	}
	return exists, info, nil, err
}

// takeDraft is Take with an optional draft of the record. A draft is published without
// looking for a record first: publishing fails if there is one.
func (c *Claim) takeDraft(ctx context.Context, draft *catalog.Draft) error {
	if draft == nil {
		return c.Take(ctx)
	}
	if err := c.Step(ctx, "publish record"); err != nil {
		return errors.Join(err, c.Cat.Drop(draft))
	}
	err := c.Cat.Publish(draft)
	if errors.Is(err, fs.ErrExist) {
		return c.Take(ctx)
	}
	if err != nil {
		return err
	}
	c.rec, c.isNew = c.want, true
	return nil
}

// confirm checks, after the record is written, that it may stay. exists tells whether the
// directory was found before.
func (c *Claim) confirm(ctx context.Context, exists bool) error {
	if c.isNew && exists {
		if err := c.revalidate(); err != nil {
			return err
		}
	}
	if !c.isNew && exists && !c.rec.Adopted || c.rec.Shared == catalog.SharedDirectory {
		return nil
	}
	if !c.isNew && c.rec.Adopted && c.rec.ReusedFrom == "" {
		if err := c.recheckReuseNote(); err != nil {
			return err
		}
	}
	if err := c.CheckOnlyOne(ctx); err != nil {
		return errors.Join(err, c.yieldName(ctx, err))
	}
	return nil
}

// complete creates the directory of the record, or finishes an unfinished one.
func (c *Claim) complete(ctx context.Context, unfinished bool) error {
	var made bool
	var err error
	if unfinished {
		err = finishDirectory(ctx, c.Session, c.rec)
	} else {
		made, err = makeDirectory(ctx, c.Session, c.rec)
	}
	if err != nil {
		incomplete := unfinished || errors.Is(err, volume.ErrRefused)
		if (c.isNew || incomplete && c.rec.Shared == "") && ctx.Err() == nil {
			// The caller may never retry: leave no record without a directory.
			err = errors.Join(err, TakeBack(c.Session, c.rec))
		}
		return err
	}
	switch {
	case !c.isNew:
		return c.restoreRecord(ctx)
	case !made:
		return c.recheckAdoptable(ctx)
	}
	return nil
}
