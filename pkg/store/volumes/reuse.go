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

// A recreated claim, even in a rebuilt cluster, gets a new volume. With reuse: claim in
// its class the directory of the claim's previous volume is handed over: the old record
// is removed and the new volume adopts the directory. A note reserves it in between.

// checkReuse returns an error if the record would not identify the claim.
func (c Config) checkReuse(want catalog.Record) error {
	switch {
	case c.ClusterID == "":
		return fmt.Errorf("%w: %s: claim requires nfsplugin to run with --cluster-id: "+
			"another cluster may have the same claim on the same export", volume.ErrUnsupported, volume.KeyReuse)
	case want.Claim() == "":
		return fmt.Errorf("%w: %s: claim, but the request does not name the claim; run csi-provisioner with --extra-create-metadata",
			volume.ErrInvalid, volume.KeyReuse)
	}
	return nil
}

// reuse hands the directory of the claim's previous volume over to this one, if the class
// asks for it and there is such a volume.
func (c *Claim) reuse(ctx context.Context) error {
	if !c.req.Params.Reuse {
		return nil
	}
	held, err := c.Cat.Hold(c.want.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		return c.resumeReuse(ctx)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.handOver(ctx, held), held.Close())
}

// resumeReuse resumes the handover of a call that was killed, even if that call was for
// another volume of the claim.
func (c *Claim) resumeReuse(ctx context.Context) error {
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

// handOver releases the directory of the claim's previous volume.
func (c *Claim) handOver(ctx context.Context, held *catalog.Held) error {
	previous := held.Record()
	if previous.Name == c.want.Name || previous.ArchiveOf != "" || !previous.SameClaim(c.want) {
		return nil // Take reports the conflict, if any
	}
	exists, _, err := fsat.Directory(c.Root, previous.SubDir)
	if err == nil && !exists {
		err = fmt.Errorf("%w: the directory of %s, the claim's previous volume, does not exist; the volume may be being deleted", volume.ErrInProgress, previous.Name)
	}
	if err == nil {
		err = c.busy(session.Key{Export: c.req.Params.Export, SubDir: previous.SubDir})
	}
	if err != nil {
		return err
	}
	id, err := volume.ParseID(previous.ID)
	if err != nil {
		return fmt.Errorf("record of %s: %w", previous.SubDir, err)
	}
	c.want.ReusedFrom = previous.ID
	if err := c.noteReuse(ctx); err != nil {
		return err
	}
	if err := c.Step(ctx, "release record"); err != nil {
		return err
	}
	return errors.Join(ForgetName(c.Cat, previous, id), held.Remove())
}

func (c *Claim) noteReuse(ctx context.Context) error {
	if err := c.Step(ctx, "note reuse"); err != nil {
		return err
	}
	return c.Cat.NoteReuse(c.want)
}

// checkReuseNote returns an error if the directory is being handed over to another volume.
// It runs after the record is written: the note is older than the gap between the two
// records of a handover.
func (c *Claim) checkReuseNote() error {
	next, err := c.Cat.Reuse(c.want.SubDir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && next.Name == c.want.Name && c.want.ReusedFrom != "":
		return nil
	case err != nil:
		return err
	case next.Name == c.want.Name: // noted since this call looked; the record must have ReusedFrom
		return fmt.Errorf("%w: another controller is handing the directory %s over to the volume", volume.ErrInProgress, next.SubDir)
	case (!c.want.Adopted || next.SameClaim(c.want)) && time.Since(next.Created).Abs() > noteTTL:
		return c.Cat.ForgetReuse(next) // of a directory that is gone, or of the claim's previous volume
	case next.SameClaim(c.want):
		return fmt.Errorf("%w: the directory %s is being handed over to volume %s of the claim", volume.ErrInProgress, next.SubDir, next.Name)
	}
	return reservedError(next, c.want)
}

// recheckReuseNote is checkReuseNote for the record of an earlier call, which may have
// been killed before the check. The record stays: it may be older than the note.
func (c *Claim) recheckReuseNote() error {
	next, err := c.Cat.Reuse(c.rec.SubDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && next.Name != c.rec.Name && !next.SameClaim(c.rec):
		return reservedError(next, c.rec)
	}
	return err
}

func reservedError(next, want catalog.Record) error {
	return fmt.Errorf("%w (noted in %s)", ownedError(next, want), path.Join(volume.MetaDir, catalog.ReusePath(next.SubDir)))
}
