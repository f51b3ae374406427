package inventory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/copies"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// SnapshotQuery says which snapshots to list.
type SnapshotQuery struct {
	// Source is the volume that the snapshots are of; nil for all.
	Source *volume.ID
	// Max is how many to return, 0 for all.
	Max int
	// Token of the page before, empty for the first.
	Token        string
	MountOptions []string
}

// ListSnapshots lists the snapshots on the exports of the inventory and on
// that of the source, ordered by export and path. The token names the last one of a
// page, so that it stays valid when snapshots come and go.
//
// Errors: volume.ErrToken, those of share.Cache.
func (i *Inventory) ListSnapshots(ctx context.Context, q SnapshotQuery) (page []copies.Snapshot, next string, err error) {
	start, err := parseToken(q.Token)
	if err != nil {
		return nil, "", err
	}
	for _, export := range i.snapshotExports(start, q) {
		more, err := i.snapshotsOn(ctx, export, start.in(export), q)
		if err != nil {
			return nil, "", fmt.Errorf("list snapshots on %s: %w", export, err)
		}
		for _, snap := range more {
			if q.Max > 0 && len(page) == q.Max {
				return page, next, nil
			}
			page = append(page, snap.Snapshot)
			next = position{export.String(), snap.path}.token()
		}
	}
	return page, "", nil
}

// snapshotExports are those to list from start on. That of the source is listed even if
// it is not known, which does not make it known.
func (i *Inventory) snapshotExports(start position, q SnapshotQuery) []volume.Export {
	list := i.from(start.export)
	if q.Source == nil || q.Source.Export.String() < start.export {
		return list
	}
	at, known := slices.BinarySearchFunc(list, q.Source.Export.String(), func(e volume.Export, name string) int {
		return strings.Compare(e.String(), name)
	})
	if known {
		return list
	}
	return slices.Insert(list, at, q.Source.Export)
}

// listedSnapshot is a snapshot and the path of its record.
type listedSnapshot struct {
	copies.Snapshot
	path string
}

// snapshotsOn lists one export after a path, and one more than fit on a page.
func (i *Inventory) snapshotsOn(ctx context.Context, export volume.Export, after string, q SnapshotQuery) ([]listedSnapshot, error) {
	// No snapshot's lock is needed: what is not complete is not in the catalog.
	t := i.Target(session.Key{Export: export, SubDir: volume.MetaDir}, q.MountOptions)
	return session.Result(ctx, i.cfg.Exports.View, t, func(ctx context.Context, x *session.Session) ([]listedSnapshot, error) {
		return snapshotsIn(ctx, x.Records(), after, q)
	})
}

func snapshotsIn(ctx context.Context, records session.Records, after string, q SnapshotQuery) (list []listedSnapshot, err error) {
	for path, err := range records.SnapshotPaths(after) {
		if err := errors.Join(err, ctx.Err()); err != nil || q.Max > 0 && len(list) > q.Max {
			return list, err
		}
		snap, err := readSnapshot(records, path)
		_, broken := errors.AsType[*catalog.BrokenError](err)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case broken: // lest it hide all others
			klog.FromContext(ctx).Error(err, "Skipped the unreadable record of a snapshot", logkeys.Record, path)
		case err != nil:
			return nil, err
		case q.Source == nil || isOf(snap, *q.Source):
			list = append(list, listedSnapshot{snap, path})
		}
	}
	return list, nil
}

func isOf(snap copies.Snapshot, source volume.ID) bool {
	id, err := volume.ParseID(snap.SourceID)
	return err == nil && id.SameVolume(source)
}
