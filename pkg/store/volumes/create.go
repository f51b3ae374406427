package volumes

import (
	"context"
	"errors"
	"io/fs"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Make makes the volume, or finds it when an earlier call has made it. A directory of
// the volume's name that no live volume owns is adopted as it is.
//
// Errors: volume.ErrIncompatible when the volume exists with another size or other
// parameters, volume.ErrOwned, volume.ErrNotAdopted, volume.ErrInProgress.
func (c *Claim) Make(ctx context.Context) (Volume, error) {
	if c.want.Shared == catalog.SharedVolume {
		return c.makeShared(ctx)
	}
	there, info, draft, err := c.lookAndDraft(ctx)
	if err != nil {
		return Volume{}, err
	}
	c.want.Adopted = there
	if err := c.takeOver(ctx); err != nil {
		return Volume{}, err
	}
	if err := c.takeDrafted(ctx, draft); err != nil {
		return Volume{}, err
	}
	if err := c.confirm(ctx, there); err != nil {
		return Volume{}, err
	}
	made := Volume{ID: c.id, Capacity: c.rec.Capacity}
	half := there && halfMade(c.rec, info)
	if there && !half {
		return made, c.forgetRetained()
	}
	return made, c.complete(ctx, half)
}

// complete makes the directory of a record, or what is left to do of one that is half
// made.
func (c *Claim) complete(ctx context.Context, half bool) error {
	made, err := completeDirectory(ctx, c.Session, c.rec, half)
	if err != nil {
		incomplete := half || errors.Is(err, volume.ErrRefused)
		if (c.isNew || incomplete && c.rec.Shared == "") && ctx.Err() == nil {
			// The caller may give up for good: leave no claim without a directory.
			err = errors.Join(err, c.TakeBack())
		}
		return err
	}
	switch {
	case !c.isNew:
		return c.restore(ctx)
	case !made:
		return c.cameBetween(ctx)
	}
	return nil
}

// lookAndDraft looks for the directory. Since there is probably none, it writes the
// record of a new one meanwhile, where the volume's name says where that belongs.
func (c *Claim) lookAndDraft(ctx context.Context) (there bool, info fs.FileInfo, draft *catalog.Draft, err error) {
	var draftErr error
	drafted := make(chan struct{})
	if namedAsItsDirectory(c.want) && !c.req.Params.Reuse {
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
	there, info, err = fsat.Directory(c.Root, c.want.SubDir)
	<-drafted
	if err == nil && !there {
		return false, nil, draft, draftErr
	}
	if draft != nil {
		err = errors.Join(err, c.Cat.Drop(draft))
	}
	if err == nil { // mkdir(2) asks the server, what was looked at so far does not
		there, info, err = fsat.DirectoryNow(c.Root, c.want.SubDir)
	}
	return there, info, nil, err
}

// forgetRetained removes the note of a retained directory that has been adopted. From
// its record on that says whose it is, and a new note comes when it is retained again.
func (c *Claim) forgetRetained() error {
	if !c.rec.Adopted {
		return nil
	}
	return c.Cat.ForgetRetained(c.rec)
}
