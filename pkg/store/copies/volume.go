package copies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// CreateVolume makes a volume with content and the record want, or finds it. Its directory
// is made in a staging directory and renamed to its place when it is complete. Deleting
// the volume of the ID ends the copy.
//
// Errors besides those of a volume without content: volume.ErrInProgress,
// volume.ErrNotFound and volume.ErrSnapshotNotFound of the source.
func (c *Copies) CreateVolume(ctx context.Context, t session.Target, id volume.ID, req volumes.Request, want catalog.Record) (volumes.Volume, error) {
	want.Pending = true
	job := copyjob.Request[volumeIdentity]{
		Key: t.Key, Identity: volumeIdentity(want),
		Sources: []volume.Export{exportOf(req.Source)}, Volume: volumeOf(req.Source), Owner: id.Name,
	}
	made, err := c.Volumes.Run(ctx, job, func(ctx context.Context, task copyjob.Task) (volumes.Volume, error) {
		defer c.cfg.Kick(t)
		return session.Result(ctx, c.cfg.Exports.DoInJob, t, func(ctx context.Context, x *session.Session) (volumes.Volume, error) {
			return c.createVolume(ctx, x, req, want, task)
		})
	})
	if err == nil && !req.Size.Contains(made.Capacity) {
		err = fmt.Errorf("%w: the volume has %d bytes, the request needs %s", volume.ErrIncompatible, made.Capacity, req.Size)
	}
	if err != nil {
		return volumes.Volume{}, fmt.Errorf("create volume %s on %s from %s: %w", req.Name, t.Key.Export, req.Source, err)
	}
	return made, nil
}

func (c *Copies) createVolume(ctx context.Context, x *session.Session, req volumes.Request, want catalog.Record, t copyjob.Task) (volumes.Volume, error) {
	have, found, err := findWhole(x, want, req.Size)
	if err != nil {
		return volumes.Volume{}, err
	}
	if found {
		if err := volumes.Whole(ctx, x, have); err != nil {
			return volumes.Volume{}, err
		}
		// A call killed at its end may have left its staging directory.
		if err := x.Cat.EndStagings(x.Key.SubDir, ""); err != nil {
			return volumes.Volume{}, err
		}
		return volumes.Of(have)
	}
	if src := keyOf(req.Source); src.Export == x.Key.Export && strings.HasPrefix(x.Key.SubDir, src.SubDir+"/") {
		return volumes.Volume{}, fmt.Errorf("%w: %s lies in its source", volume.ErrOwned, x.Key.SubDir)
	}
	from, err := c.openSource(ctx, req.Source, x)
	if err == nil {
		defer from.close()
		want.Capacity, err = from.choose(req.Size)
	}
	if err != nil {
		// No other call can complete it either: take back what a killed one left.
		return volumes.Volume{}, errors.Join(err, x.Cat.EndStagings(x.Key.SubDir, ""), unclaim(ctx, x, want))
	}
	claim := volumes.NewClaim(x, req, want, c.Busy)
	if err := claim.Take(ctx); err != nil {
		return volumes.Volume{}, err
	}
	v := &volumeCopy{copies: c, from: from, claim: claim, want: claim.Record()}
	if err = claim.CheckOnlyOne(ctx); err == nil {
		v.staging, err = newStaging(ctx, x, catalog.SnapshotData)
	}
	if err == nil {
		err = v.explain(v.make(ctx, t))
	}
	if err != nil {
		if v.staging != nil && ctx.Err() == nil {
			err = errors.Join(err, v.end(ctx))
		}
		return volumes.Volume{}, errors.Join(err, unclaim(ctx, x, v.want))
	}
	return volumes.Of(v.want)
}

// findWhole finds the volume if an earlier call has made it. A directory without an
// owner is not adopted: it has other content.
func findWhole(x *session.Session, want catalog.Record, size volumes.SizeRange) (have catalog.Record, found bool, err error) {
	there, _, err := fsat.DirectoryNow(x.Root, want.SubDir)
	if err != nil {
		return catalog.Record{}, false, err
	}
	have, err = x.Cat.Read(want.SubDir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && there:
		return catalog.Record{}, false, fmt.Errorf("%w: the directory %s is there already, with other content", volume.ErrOwned, want.SubDir)
	case errors.Is(err, fs.ErrNotExist):
		return catalog.Record{}, false, nil
	case err != nil:
		return catalog.Record{}, false, err
	}
	return have, there, volumes.SameRequest(have, want, size)
}

// choose the capacity of a volume with this content: that of the source where none is
// requested. No capacity is enforced, so content of any size fits.
func (c *content) choose(size volumes.SizeRange) (int64, error) {
	capacity, err := size.Choose()
	switch {
	case err != nil || capacity > 0:
		return capacity, err
	case size.Limit > 0:
		return min(c.capacity, size.Limit), nil
	}
	return c.capacity, nil
}

// volumeCopy makes the directory of a volume.
type volumeCopy struct {
	*staging
	copies *Copies
	from   *content
	claim  *volumes.Claim
	want   catalog.Record // that the claim has taken
}

func (v *volumeCopy) make(ctx context.Context, t copyjob.Task) error {
	there, _, err := fsat.DirectoryNow(v.Root, v.want.SubDir)
	if err != nil {
		return err
	}
	rec := v.want
	if !there {
		if rec, err = v.fillAndPlace(ctx, t); err != nil {
			return err
		}
	}
	if err := volumes.Whole(ctx, v.Session, rec); err != nil {
		return err
	}
	if err := v.Step(ctx, "end copy"); err != nil {
		return err
	}
	if err := v.end(ctx); err != nil {
		return err
	}
	return v.Step(ctx, "answer")
}

func (v *volumeCopy) fillAndPlace(ctx context.Context, t copyjob.Task) (catalog.Record, error) {
	if err := v.Step(ctx, "copy"); err != nil {
		return catalog.Record{}, err
	}
	if err := v.fillVolume(ctx, t); err != nil {
		return catalog.Record{}, err
	}
	if err := v.Step(ctx, "move copy into place"); err != nil {
		return catalog.Record{}, err
	}
	// A delete that did not know of the copy may have removed the record.
	if _, err := v.Cat.Read(v.want.SubDir); errors.Is(err, fs.ErrNotExist) {
		return catalog.Record{}, errUnclaimed
	} else if err != nil {
		return catalog.Record{}, err
	}
	if err := v.placeVolume(v.want.SubDir); err != nil {
		return catalog.Record{}, err
	}
	// Another controller whose copy failed may have removed the record just now.
	err := v.claim.Retake(ctx)
	return v.claim.Record(), err
}

// fillVolume copies the content and sets the owner and mode of the class on its
// directory. What the class leaves open is as in the source.
func (v *volumeCopy) fillVolume(ctx context.Context, t copyjob.Task) error {
	data, err := v.openData()
	if err != nil {
		return err
	}
	defer data.Close()
	if v.from.tarball != nil { // it need not contain the owner and mode of the directory
		if err := data.Chmod(cmp.Or(v.copies.cfg.Volumes.Mode, volumes.DefaultMode)); err != nil {
			return err
		}
	}
	if err := v.fill(ctx, v.from, v.copies.cfg.Workers, t); err != nil {
		return err
	}
	if err := volumes.Own(data, v.want); err != nil || v.want.Mode == 0 {
		return err
	}
	return data.Chmod(v.want.Mode)
}

// unclaim takes back the record of a volume whose copy failed, since the caller may
// never retry. The record stays while another controller may be making the volume, and
// when this process only stops.
func unclaim(ctx context.Context, x *session.Session, want catalog.Record) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // this process stops
	}
	others, err := x.Cat.Temporary(catalog.StagingKind(x.Key.SubDir))
	if err != nil || len(others) > 0 {
		return err
	}
	have, err := x.Cat.Read(want.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || have.Name != want.Name {
		return err
	}
	// In this order: there is a staging directory until the volume's directory exists.
	return volumes.TakeBack(x, have)
}
