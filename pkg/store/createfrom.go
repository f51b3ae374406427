package store

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

// createFrom makes a volume with content, or finds it. Its directory is made in
// the catalog's tmp and renamed to its place when it is whole.
//
// Errors besides those of Create: volume.ErrInProgress, volume.ErrNotFound and
// volume.ErrSnapshotNotFound of the source.
func (s *Store) createFrom(ctx context.Context, req CreateRequest, want catalog.Record) (Created, error) {
	export := req.Params.Export
	t := thisShare(export, want.SubDir, req.MountOptions)
	want.Pending = true
	id, err := volume.ParseID(want.ID)
	if err != nil {
		return Created{}, err
	}
	job := copyjob.Request[volumeIdentity]{
		Key: t.Key, Identity: volumeIdentity(want),
		Sources: []volume.Export{req.Source.export()}, Volume: req.Source.volume(), Owner: id.Name,
	}
	made, err := s.copies.volumes.Run(ctx, job, func(ctx context.Context, task copyjob.Task) (Created, error) {
		defer s.reclaim.Kick(t)
		return session.DoInJob(ctx, s.exports, t, func(ctx context.Context, x *session.Session) (Created, error) {
			return s.createCopy(ctx, x, want, req, task)
		})
	})
	if err == nil && !req.Size.Contains(made.Capacity) {
		err = fmt.Errorf("%w: it has %d bytes, asked for are %s", volume.ErrIncompatible, made.Capacity, req.Size)
	}
	if err != nil {
		return Created{}, fmt.Errorf("create volume %s on %s from %s: %w", req.Name, export, req.Source, err)
	}
	s.known.saw(want.SubDir, made.ID)
	return made, nil
}

func (s *Store) createCopy(ctx context.Context, x *session.Session, want catalog.Record, req CreateRequest, t copyjob.Task) (Created, error) {
	have, found, err := findWhole(x, want, req.Size)
	if err != nil {
		return Created{}, err
	}
	if found {
		if err := volumes.Whole(ctx, x, have); err != nil {
			return Created{}, err
		}
		// A killed call may have left the operation behind that it had just finished.
		if err := x.Cat.EndStagings(x.Key.SubDir, ""); err != nil {
			return Created{}, err
		}
		return volumes.Of(have)
	}
	if src := req.Source.key(); src.Export == x.Key.Export && strings.HasPrefix(x.Key.SubDir, src.SubDir+"/") {
		return Created{}, fmt.Errorf("%w: %s lies in its source", volume.ErrOwned, x.Key.SubDir)
	}
	from, err := s.openSource(ctx, req.Source, x)
	if err == nil {
		defer from.close()
		want.Capacity, err = from.choose(req.Size)
	}
	if err != nil {
		// Nor can anybody else go on with it: take back what a killed call left.
		return Created{}, errors.Join(err, x.Cat.EndStagings(x.Key.SubDir, ""), unclaimCopy(ctx, x, want))
	}
	c := volumes.NewClaim(x, req.volume(), want, s.copies.busy)
	if err := c.Take(ctx); err != nil {
		return Created{}, err
	}
	want = c.Record()
	var op *operation
	if err = c.CheckOnlyOne(ctx); err == nil {
		op, err = beginOperation(ctx, x, catalog.SnapshotData)
	}
	if err == nil {
		err = op.unlessTaken(s.makeCopy(ctx, op, from, want, t))
	}
	if err != nil {
		if op != nil && ctx.Err() == nil {
			err = errors.Join(err, op.end(ctx))
		}
		return Created{}, errors.Join(err, unclaimCopy(ctx, x, want))
	}
	return volumes.Of(want)
}

// findWhole finds the volume if it was made before. A directory that no volume
// owns is not adopted here: it has other content.
func findWhole(x *session.Session, want catalog.Record, size SizeRange) (have catalog.Record, found bool, err error) {
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

// choose the capacity of a volume with this content: that of its source where none is
// asked for. No capacity is enforced, so content of any size fits.
func (c *content) choose(size SizeRange) (int64, error) {
	capacity, err := size.Choose()
	switch {
	case err != nil || capacity > 0:
		return capacity, err
	case size.Limit > 0:
		return min(c.capacity, size.Limit), nil
	}
	return c.capacity, nil
}

func (s *Store) makeCopy(ctx context.Context, op *operation, from *content, want catalog.Record, t copyjob.Task) error {
	there, _, err := fsat.DirectoryNow(op.Root, want.SubDir)
	if err != nil {
		return err
	}
	if !there {
		if err := op.Step(ctx, "copy"); err != nil {
			return err
		}
		if err := s.fillVolume(ctx, op, from, want, t); err != nil {
			return err
		}
		if err := op.Step(ctx, "put copy in its place"); err != nil {
			return err
		}
		// The record may have gone with a delete that did not know of this.
		if _, err := op.Cat.Read(want.SubDir); errors.Is(err, fs.ErrNotExist) {
			return errUnclaimed
		} else if err != nil {
			return err
		}
		if err := op.placeVolume(want.SubDir); err != nil {
			return err
		}
		// Nor may it go without one, should another controller have failed and taken
		// the record back just now.
		c := volumes.NewClaim(op.Session, volumes.Request{}, want, s.copies.busy)
		if err := c.Take(ctx); err != nil {
			return err
		}
		want = c.Record()
	}
	if err := volumes.Whole(ctx, op.Session, want); err != nil {
		return err
	}
	if err := op.Step(ctx, "end copy"); err != nil {
		return err
	}
	if err := op.end(ctx); err != nil {
		return err
	}
	return op.Step(ctx, "answer")
}

// fillVolume copies the content and gives its directory the owner and mode that
// the class asks for; what it does not say stays as it is in the source.
func (s *Store) fillVolume(ctx context.Context, op *operation, from *content, want catalog.Record, t copyjob.Task) error {
	data, err := op.openData()
	if err != nil {
		return err
	}
	defer data.Close()
	if from.tarball != nil { // it need not contain the owner and mode of the directory
		if err := data.Chmod(cmp.Or(s.cfg.volumes().Mode, volumes.DefaultMode)); err != nil {
			return err
		}
	}
	if err := op.fill(ctx, from, s.cfg.CopyWorkers, t); err != nil {
		return err
	}
	if err := volumes.Own(data, want); err != nil || want.Mode == 0 {
		return err
	}
	return data.Chmod(want.Mode)
}

// unclaimCopy takes back what was made for a volume whose copy failed, for the
// caller may give up for good. The record stays while another controller may be
// making the volume, and when this one is only told to stop.
func unclaimCopy(ctx context.Context, x *session.Session, want catalog.Record) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // as said
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
	// Looks for the directory after that: an operation is there until its directory is.
	return volumes.TakeBack(x, have)
}
