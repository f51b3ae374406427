package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A claim that is deleted and made again, also in a cluster that was built anew, gets
// another volume. With reuse: claim in its class that gets the directory of the one
// before, which its record shows to be the same claim's. It is given up by the old
// volume and then adopted by the new one; a note in between keeps all others from it.

// checkReuse returns why the request cannot be told to be of the same claim as an
// earlier one.
func (c Config) checkReuse(want catalog.Record) error {
	switch {
	case c.ClusterID == "":
		return fmt.Errorf("%w: %s: claim, unless nfsplugin is told with --cluster-id which cluster this is: "+
			"others may have the same claim on the same export", volume.ErrUnsupported, volume.KeyReuse)
	case want.Claim() == "":
		return fmt.Errorf("%w: %s: claim, and the request does not name the claim; csi-provisioner does when it runs with --extra-create-metadata",
			volume.ErrInvalid, volume.KeyReuse)
	}
	return nil
}

// takeOver makes the directory of the claim's volume before one that this volume
// can adopt, if that is what the request asks for and there is such a volume.
func (c *Claim) takeOver(ctx context.Context) error {
	if !c.req.Params.Reuse {
		return nil
	}
	held, err := c.Cat.Hold(c.want.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		return c.takeOverAgain(ctx)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.release(ctx, held), held.Close())
}

// takeOverAgain goes on where a call was killed, also one for a volume that the claim
// had in between.
func (c *Claim) takeOverAgain(ctx context.Context) error {
	next, err := c.Cat.Reuse(c.want.SubDir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !next.SameClaim(c.want) {
		return nil
	}
	if err != nil {
		return err
	}
	c.want.ReusedFrom = next.ReusedFrom
	if next.Name == c.want.Name {
		return nil
	}
	return c.noteReuse(ctx)
}

// release has the claim's volume before give up its directory.
func (c *Claim) release(ctx context.Context, held *catalog.Held) error {
	before := held.Record()
	if before.Name == c.want.Name || before.ArchiveOf != "" || !before.SameClaim(c.want) {
		return nil // claim tells what is wrong with it, if anything
	}
	there, _, err := fsat.Directory(c.Root, before.SubDir)
	if err == nil && !there {
		err = fmt.Errorf("%w: the directory of volume %s, which the claim had before, is not there; it may be being deleted", volume.ErrInProgress, before.Name)
	}
	if err == nil {
		err = c.busy(session.Key{Export: c.req.Params.Export, SubDir: before.SubDir})
	}
	if err != nil {
		return err
	}
	id, err := volume.ParseID(before.ID)
	if err != nil {
		return fmt.Errorf("record of %s: %w", before.SubDir, err)
	}
	c.want.ReusedFrom = before.ID
	if err := c.noteReuse(ctx); err != nil {
		return err
	}
	if err := c.Step(ctx, "release record"); err != nil {
		return err
	}
	return errors.Join(ForgetName(c.Cat, before, id), held.Remove())
}

func (c *Claim) noteReuse(ctx context.Context) error {
	if err := c.Step(ctx, "note reuse"); err != nil {
		return err
	}
	return c.Cat.NoteReuse(c.want)
}

// spareReuse returns an error where the directory is on its way to another volume. It
// comes after the record: whoever finds the place of one free between two volumes of a
// claim sees the note, which is older.
func (c *Claim) spareReuse() error {
	next, err := c.Cat.Reuse(c.want.SubDir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && next.Name == c.want.Name && c.want.ReusedFrom != "":
		return nil
	case err != nil:
		return err
	case next.Name == c.want.Name: // noted since this call looked; its record must say so
		return fmt.Errorf("%w: another controller gives the directory %s to the volume", volume.ErrInProgress, next.SubDir)
	case (!c.want.Adopted || next.SameClaim(c.want)) && time.Since(next.Created).Abs() > nameHeld:
		return c.Cat.ForgetReuse(next) // of a directory that is gone, or of the claim's volume before
	case next.SameClaim(c.want):
		return fmt.Errorf("%w: the directory %s becomes that of volume %s of the claim", volume.ErrInProgress, next.SubDir, next.Name)
	}
	return promised(next, c.want)
}

// notPromised is spareReuse for the record of an earlier call, which may have been
// killed before it came to that. The record stays: it may be older than the note.
func (c *Claim) notPromised() error {
	next, err := c.Cat.Reuse(c.rec.SubDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && next.Name != c.rec.Name && !next.SameClaim(c.rec):
		return promised(next, c.rec)
	}
	return err
}

func promised(next, want catalog.Record) error {
	return fmt.Errorf("%w (noted in %s)", owned(next, want), path.Join(volume.MetaDir, catalog.ReusePath(next.SubDir)))
}
