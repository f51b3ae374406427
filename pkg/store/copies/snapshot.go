package copies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/deletion"
	"github.com/nfs-csi/nfs-csi/pkg/store/legacy"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// CreateSnapshot copies the volume as it is, or finds the snapshot that an earlier call
// has made. Pods may write meanwhile: each file is as it was at some time during the
// call.
//
// Errors: volume.ErrSnapshotDiffers when a snapshot of another volume has this name,
// volume.ErrNotFound, volume.ErrInProgress, those of share.Cache.
func (c *Copies) CreateSnapshot(ctx context.Context, req SnapshotRequest) (Snapshot, error) {
	dir, err := volume.DirName(req.Name)
	if err != nil {
		return Snapshot{}, err
	}
	id := volume.SnapshotID{Export: req.Source.Export, Name: dir, Source: req.Source.Name}
	if req.Export != nil {
		id.Export = *req.Export
	}
	t, src := c.cfg.Target(session.SnapshotKey(id), req.MountOptions), &volumes.Source{Volume: &req.Source}
	job := copyjob.Request[snapshotIdentity]{
		Key: t.Key, Identity: snapshotIdentity{req.Name, src.String()},
		Sources: []volume.Export{req.Source.Export}, Volume: volumeOf(src), Owner: id.Source,
	}
	made, err := c.snapshots.Run(ctx, job, func(ctx context.Context, task copyjob.Task) (Snapshot, error) {
		defer c.cfg.Kick(t)
		return session.Result(ctx, c.cfg.Exports.DoInJob, t, func(ctx context.Context, x *session.Session) (Snapshot, error) {
			return c.createSnapshot(ctx, x, id, req, task)
		})
	})
	if err != nil {
		return Snapshot{}, fmt.Errorf("create snapshot %s of %s: %w", req.Name, req.Source, err)
	}
	return made, nil
}

func (c *Copies) createSnapshot(ctx context.Context, x *session.Session, id volume.SnapshotID, req SnapshotRequest, t copyjob.Task) (Snapshot, error) {
	if have, err := sameSnapshot(x.Cat, id, req.Source); !errors.Is(err, fs.ErrNotExist) {
		return have, err
	}
	from, err := c.openSource(ctx, &volumes.Source{Volume: &req.Source}, x)
	if err != nil {
		return Snapshot{}, err
	}
	defer from.close()
	st, err := newStaging(ctx, x, catalog.SnapshotData)
	if err != nil {
		return Snapshot{}, err
	}
	s := &snapshotCopy{staging: st, copies: c, id: id, req: req, from: from}
	if err := s.explain(s.make(ctx, t)); err != nil {
		if ctx.Err() == nil {
			err = errors.Join(err, s.end(ctx))
		}
		return Snapshot{}, err
	}
	return sameSnapshot(x.Cat, id, req.Source)
}

// sameSnapshot finds the snapshot of an earlier call; fs.ErrNotExist if there is none.
func sameSnapshot(cat *catalog.Catalog, id volume.SnapshotID, source volume.ID) (Snapshot, error) {
	rec, err := cat.ReadSnapshot(catalog.SnapshotPath(id))
	if err != nil {
		return Snapshot{}, err
	}
	have, err := volume.ParseID(rec.SourceID)
	if err != nil {
		return Snapshot{}, fmt.Errorf("record of snapshot %s: %w", id.Name, err)
	}
	if !have.SameVolume(source) {
		return Snapshot{}, fmt.Errorf("%w: there is one of that name, of %s", volume.ErrSnapshotDiffers, rec.SourceID)
	}
	return SnapshotOf(rec)
}

// snapshotCopy makes a snapshot.
type snapshotCopy struct {
	*staging
	copies *Copies
	id     volume.SnapshotID
	req    SnapshotRequest
	from   *content
}

func (s *snapshotCopy) make(ctx context.Context, t copyjob.Task) error {
	rec := catalog.Snapshot{
		Name: s.req.Name, ID: s.id.String(), SourceID: s.req.Source.String(),
		Capacity: s.from.capacity, Created: time.Now().UTC(),
	}
	if err := s.Step(ctx, "copy"); err != nil {
		return err
	}
	if err := s.fill(ctx, s.from, s.copies.cfg.Workers, t); err != nil {
		return err
	}
	rec.Bytes, rec.Entries = t.Bytes(), t.Entries()
	if err := s.Cat.WriteSnapshot(s.name, rec); err != nil {
		return err
	}
	logCopied(ctx, rec, t.Progress)
	return s.place(ctx, "move snapshot into place", catalog.SnapshotPath(s.id))
}

// logCopied logs what a snapshot contains, for which the CSI has no field, and what of
// the volume it lacks.
func logCopied(ctx context.Context, rec catalog.Snapshot, p *tree.Progress) {
	log := klog.FromContext(ctx).WithValues(logkeys.SnapshotID, rec.ID)
	log.Info("Copied a volume for a snapshot", logkeys.SourceVolumeID, rec.SourceID,
		logkeys.ContentBytes, rec.Bytes, logkeys.ContentEntries, rec.Entries, logkeys.CapacityBytes, rec.Capacity)
	if n := p.Devices(); n > 0 {
		log.Info("Left device nodes out of a snapshot", logkeys.Devices, n)
	}
	if n := p.Unlinked(); n > 0 {
		log.Info("Copied hard links as separate files: they changed meanwhile or cannot be linked", logkeys.Links, n)
	}
}

// DeleteSnapshot moves the snapshot to the trash. It is no error if it does not exist.
//
// Errors: volume.ErrInUse while a volume is being made from it,
// volume.ErrInGroup, those of share.Cache.
func (c *Copies) DeleteSnapshot(ctx context.Context, id volume.SnapshotID, mountOptions []string) error {
	t := c.cfg.Target(session.SnapshotKey(id), mountOptions)
	err := c.snapshots.End(ctx, t.Key, id.Source)
	if err == nil {
		err = c.cfg.Exports.Do(ctx, t, func(ctx context.Context, x *session.Session) error {
			if err := c.Free(t.Key); err != nil {
				return err
			}
			return deletion.Snapshot(ctx, x, id)
		})
	}
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	c.cfg.Kick(t)
	return nil
}

// GetSnapshot returns the snapshot, or volume.ErrSnapshotNotFound.
func (c *Copies) GetSnapshot(ctx context.Context, id volume.SnapshotID, mountOptions []string) (Snapshot, error) {
	t := c.cfg.Target(session.SnapshotKey(id), mountOptions)
	found, err := session.Result(ctx, c.cfg.Exports.View, t, func(_ context.Context, x *session.Session) (Snapshot, error) {
		rec, err := x.Records().ReadSnapshot(catalog.SnapshotPath(id))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return findTarball(x, id)
		case err != nil:
			return Snapshot{}, err
		case rec.ID != id.String():
			return Snapshot{}, fmt.Errorf("%w: its name is that of %s", volume.ErrSnapshotNotFound, rec.ID)
		}
		return SnapshotOf(rec)
	})
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot %s: %w", id, err)
	}
	return found, nil
}

// findTarball describes a snapshot of csi-driver-nfs.
func findTarball(x *session.Session, id volume.SnapshotID) (Snapshot, error) {
	t, err := legacy.Open(x, id)
	if err != nil {
		return Snapshot{}, err
	}
	defer t.Close()
	return Snapshot{ID: id, SourceID: t.Source.String(), Created: t.Created}, nil
}
