package copies

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// CreateGroup makes snapshots of several volumes, all or none, or finds those that an
// earlier call has made. They show all volumes as of one time. NFS cannot suspend
// writes, so CreateGroup checks at the end whether there were any.
//
// Errors: volume.ErrWritten when there were, volume.ErrSnapshotDiffers when a group of
// other volumes has this name, volume.ErrInvalid, volume.ErrNotFound,
// volume.ErrInProgress, those of share.Cache.
func (c *Copies) CreateGroup(ctx context.Context, req GroupRequest) (Group, error) {
	dir, err := volume.DirName(req.Name)
	if err == nil {
		req.Sources, err = inOrder(req.Sources)
	}
	if err != nil {
		return Group{}, fmt.Errorf("create group snapshot %s: %w", req.Name, err)
	}
	id := volume.GroupID{Export: req.Sources[0].Export, Name: dir}
	if req.Export != nil {
		id.Export = *req.Export
	}
	t := c.cfg.Target(session.GroupKey(id), req.MountOptions)
	job := copyjob.Request[snapshotIdentity]{
		Key: t.Key, Identity: snapshotIdentity{req.Name, sourcesOf(req.Sources)},
		Sources: exportsOf(req.Sources), Volume: volumeOf(&volumes.Source{Volume: &req.Sources[0].ID}), Owner: dir,
	}
	made, err := c.groups.Run(ctx, job, func(ctx context.Context, task copyjob.Task) (Group, error) {
		defer c.cfg.Kick(t)
		return session.Result(ctx, c.cfg.Exports.DoInJob, t, func(ctx context.Context, x *session.Session) (Group, error) {
			return c.createGroup(ctx, x, id, req, task)
		})
	})
	if err != nil {
		return Group{}, fmt.Errorf("create group snapshot %s: %w", req.Name, err)
	}
	return made, nil
}

// inOrder sorts the sources: neither their order nor the form of their IDs tells
// requests apart.
func inOrder(sources []Handle) ([]Handle, error) {
	if len(sources) == 0 {
		return nil, fmt.Errorf("%w: no source volumes", volume.ErrInvalid)
	}
	sources = slices.SortedFunc(slices.Values(sources), func(a, b Handle) int { return strings.Compare(a.source(), b.source()) })
	for i, h := range sources[1:] {
		if h.SameVolume(sources[i].ID) {
			return nil, fmt.Errorf("%w: source volume %s is given more than once", volume.ErrInvalid, h.Text)
		}
	}
	return sources, nil
}

func exportsOf(list []Handle) []volume.Export {
	var exports []volume.Export
	for _, h := range list {
		exports = append(exports, h.Export)
	}
	return slices.Compact(exports)
}
