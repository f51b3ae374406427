package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/deletion"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Created is an existing volume.
type Created = volumes.Volume

// SizeRange is a requested capacity, in bytes.
type SizeRange = volumes.SizeRange

// CreateRequest asks for a volume.
type CreateRequest = volumes.Request

// Source of a volume's content.
type Source = volumes.Source

// Create creates the volume, or finds it if an earlier call did. An existing directory
// that no live volume owns is adopted unchanged, except for a volume with a source.
//
// Errors: volume.ErrIncompatible when the volume exists with another size or other
// parameters, volume.ErrOwned, volume.ErrInvalid, those of share.Cache.
func (s *Store) Create(ctx context.Context, req CreateRequest) (made Created, err error) {
	want, err := s.cfg.volumes().Record(req, time.Now())
	if err != nil {
		return Created{}, err
	}
	id, err := volume.ParseID(want.ID)
	if err != nil {
		return Created{}, err
	}
	t := session.Target{Key: session.Key{Export: req.Params.Export, SubDir: id.SubDir}, MountOptions: req.MountOptions, Exact: true}
	if req.Source != nil {
		made, err = s.copies.CreateVolume(ctx, t, id, req, want)
	} else {
		made, err = session.Result(ctx, s.exports.Do, t, func(ctx context.Context, x *session.Session) (Created, error) {
			return volumes.NewClaim(x, req, want, s.copies.Busy).Make(ctx)
		})
		if err != nil {
			err = fmt.Errorf("create volume %s on %s: %w", req.Name, t.Key.Export, err)
		}
	}
	if err != nil {
		return Created{}, err
	}
	s.inventory.Saw(want.SubDir, made.ID)
	return made, nil
}

// Delete deletes a volume by its policy: the directory is moved to the trash and removed in
// the background, retained, or archived. A volume that is gone is no error, nor is an
// export that cannot be used if the ID says to retain: the record stays as well.
//
// Errors: volume.ErrOwned when the directory holds or lies in another live volume,
// volume.ErrInUse, those of share.Cache.
func (s *Store) Delete(ctx context.Context, id volume.ID, mountOptions []string) error {
	if err := volume.CheckSubDir(id.SubDir); err != nil { // never the export itself
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	t := s.inventory.Target(session.Key{Export: id.Export, SubDir: id.SubDir}, mountOptions)
	err := s.copies.Volumes.End(ctx, t.Key, id.Name)
	if err == nil {
		d := deletion.Deletion{
			ID: id, Volumes: s.cfg.volumes(), Workers: s.cfg.ReclaimWorkers, Free: s.copies.Free,
			MountOptions: t.MountOptions, Kick: s.reclaim.Kick,
		}
		err = s.exports.On(ctx, t, d.Run)
	}
	if id.OnDelete == volume.OnDeleteRetain && isAway(err) {
		klog.FromContext(ctx).Error(err, "Retained a volume with its record: its export cannot be used", logkeys.VolumeID, id.String())
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	s.inventory.Forget(id)
	s.reclaim.Kick(t)
	return nil
}

// isAway reports whether the export cannot be mounted or does not answer.
func isAway(err error) bool {
	return errors.Is(err, volume.ErrUnreachable) || errors.Is(err, volume.ErrShareNotFound) || errors.Is(err, volume.ErrAccessDenied)
}

// Get finds a volume by its record, or a predecessor's volume by its directory.
//
// Errors: volume.ErrNotFound, those of share.Cache.
func (s *Store) Get(ctx context.Context, id volume.ID, mountOptions []string) (Created, error) {
	found, err := onVolume(ctx, s, id, mountOptions, func(_ context.Context, _ *session.Session, rec catalog.Record) (Created, error) {
		return Created{ID: id, Capacity: rec.Capacity}, nil
	})
	if err != nil {
		return Created{}, fmt.Errorf("get volume %s: %w", id, err)
	}
	return found, nil
}

// Expand is volumes.Expand.
//
// Errors in addition: volume.ErrNotFound, those of share.Cache.
func (s *Store) Expand(ctx context.Context, id volume.ID, size SizeRange, mountOptions []string) (capacity int64, err error) {
	if _, err = size.Choose(); err == nil && size == (SizeRange{}) {
		err = fmt.Errorf("%w: no capacity range", volume.ErrInvalid)
	}
	if err == nil {
		capacity, err = onVolume(ctx, s, id, mountOptions, func(ctx context.Context, x *session.Session, rec catalog.Record) (int64, error) {
			return volumes.Expand(ctx, x, rec, size)
		})
	}
	if err != nil {
		return 0, fmt.Errorf("expand volume %s: %w", id, err)
	}
	return capacity, nil
}

// Modify is volumes.Modify.
//
// Errors in addition: volume.ErrNotFound, those of share.Cache.
func (s *Store) Modify(ctx context.Context, id volume.ID, change volume.Mutable, mountOptions []string) error {
	_, err := onVolume(ctx, s, id, mountOptions, func(ctx context.Context, x *session.Session, rec catalog.Record) (struct{}, error) {
		return struct{}{}, volumes.Modify(ctx, x, id, rec, change)
	})
	if err != nil {
		return fmt.Errorf("modify volume %s: %w", id, err)
	}
	return nil
}

// onVolume runs job under the lock of an existing volume, with its record; empty for a
// predecessor's volume.
func onVolume[T any](ctx context.Context, s *Store, id volume.ID, mountOptions []string,
	job func(context.Context, *session.Session, catalog.Record) (T, error),
) (found T, err error) {
	if err := volume.CheckSubDir(id.SubDir); err != nil {
		return found, err
	}
	t := s.inventory.Target(session.Key{Export: id.Export, SubDir: id.SubDir}, mountOptions)
	return session.Result(ctx, s.exports.View, t, func(ctx context.Context, x *session.Session) (T, error) {
		rec, err := volumes.Find(x, id)
		if err != nil {
			var none T
			return none, err
		}
		return job(ctx, x, rec)
	})
}
