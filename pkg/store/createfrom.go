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

// createFrom makes a volume with content, or finds it. Its directory is made in a
// staging directory and renamed to its place when it is complete.
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
	s.inventory.Saw(want.SubDir, made.ID)
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
		// A call killed at its end may have left its staging directory.
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
		// No other call can complete it either: take back what a killed one left.
		return Created{}, errors.Join(err, x.Cat.EndStagings(x.Key.SubDir, ""), unclaimCopy(ctx, x, want))
	}
	c := volumes.NewClaim(x, req.volume(), want, s.copies.busy)
	if err := c.Take(ctx); err != nil {
		return Created{}, err
	}
	want = c.Record()
	var st *staging
	if err = c.CheckOnlyOne(ctx); err == nil {
		st, err = newStaging(ctx, x, catalog.SnapshotData)
	}
	if err == nil {
		err = st.explain(s.makeCopy(ctx, st, from, want, t))
	}
	if err != nil {
		if st != nil && ctx.Err() == nil {
			err = errors.Join(err, st.end(ctx))
		}
		return Created{}, errors.Join(err, unclaimCopy(ctx, x, want))
	}
	return volumes.Of(want)
}

// findWhole finds the volume if an earlier call has made it. A directory without an
// owner is not adopted: it has other content.
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

// choose the capacity of a volume with this content: that of the source where none is
// requested. No capacity is enforced, so content of any size fits.
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

func (s *Store) makeCopy(ctx context.Context, st *staging, from *content, want catalog.Record, t copyjob.Task) error {
	there, _, err := fsat.DirectoryNow(st.Root, want.SubDir)
	if err != nil {
		return err
	}
	if !there {
		if err := st.Step(ctx, "copy"); err != nil {
			return err
		}
		if err := s.fillVolume(ctx, st, from, want, t); err != nil {
			return err
		}
		if err := st.Step(ctx, "put copy in its place"); err != nil {
			return err
		}
		// A delete that did not know of the copy may have removed the record.
		if _, err := st.Cat.Read(want.SubDir); errors.Is(err, fs.ErrNotExist) {
			return errUnclaimed
		} else if err != nil {
			return err
		}
		if err := st.placeVolume(want.SubDir); err != nil {
			return err
		}
		// Another controller whose copy failed may have removed the record just now.
		c := volumes.NewClaim(st.Session, volumes.Request{}, want, s.copies.busy)
		if err := c.Take(ctx); err != nil {
			return err
		}
		want = c.Record()
	}
	if err := volumes.Whole(ctx, st.Session, want); err != nil {
		return err
	}
	if err := st.Step(ctx, "end copy"); err != nil {
		return err
	}
	if err := st.end(ctx); err != nil {
		return err
	}
	return st.Step(ctx, "answer")
}

// fillVolume copies the content and sets the owner and mode of the class on its
// directory. What the class leaves open is as in the source.
func (s *Store) fillVolume(ctx context.Context, st *staging, from *content, want catalog.Record, t copyjob.Task) error {
	data, err := st.openData()
	if err != nil {
		return err
	}
	defer data.Close()
	if from.tarball != nil { // it need not contain the owner and mode of the directory
		if err := data.Chmod(cmp.Or(s.cfg.volumes().Mode, volumes.DefaultMode)); err != nil {
			return err
		}
	}
	if err := st.fill(ctx, from, s.cfg.CopyWorkers, t); err != nil {
		return err
	}
	if err := volumes.Own(data, want); err != nil || want.Mode == 0 {
		return err
	}
	return data.Chmod(want.Mode)
}

// unclaimCopy takes back the record of a volume whose copy failed, since the caller may
// never retry. The record stays while another controller may be making the volume, and
// when this process only stops.
func unclaimCopy(ctx context.Context, x *session.Session, want catalog.Record) error {
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
