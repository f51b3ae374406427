package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// SnapshotQuery says which snapshots to list.
type SnapshotQuery struct {
	// Source, if not nil, is the volume they are of.
	Source *volume.ID
	// Max is how many to return, 0 for all.
	Max int
	// Token of the page before, empty for the first.
	Token        string
	MountOptions []string
}

// ListSnapshots lists the snapshots on the exports that this process has worked
// on and on that of the source, ordered by export and place. The token names the
// last one of a page, so that it stays good whatever comes and goes.
//
// Errors: volume.ErrToken, those of share.Cache.
func (s *Store) ListSnapshots(ctx context.Context, q SnapshotQuery) (page []Snapshot, next string, err error) {
	start, err := parseToken(q.Token)
	if err != nil {
		return nil, "", err
	}
	for _, export := range s.snapshotExports(start, q) {
		more, err := s.snapshotsOn(ctx, export, start.in(export), q)
		if err != nil {
			return nil, "", fmt.Errorf("list snapshots on %s: %w", export, err)
		}
		page = append(page, more...)
		if q.Max > 0 && len(page) > q.Max {
			page = page[:q.Max]
			last := page[q.Max-1].ID
			return page, position{last.Export.String(), snapshotPlace(last)}.token(), nil
		}
	}
	return page, "", nil
}

// snapshotExports are those to list from start on. That of the source need not be
// known, and is not for having been asked for.
func (s *Store) snapshotExports(start position, q SnapshotQuery) []volume.Export {
	list := s.known.from(start.export)
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

// snapshotsOn lists one export after a place, and one more than fit on a page.
func (s *Store) snapshotsOn(ctx context.Context, export volume.Export, after string, q SnapshotQuery) ([]Snapshot, error) {
	// Not a snapshot's lock: only what is whole is there to be seen.
	t := s.anyShare(export, volume.MetaDir, q.MountOptions)
	return session.View(ctx, s.exports, t, func(ctx context.Context, x *session.Session) ([]Snapshot, error) {
		return snapshotsIn(ctx, x.Records(), after, q)
	})
}

func snapshotsIn(ctx context.Context, cat session.Records, after string, q SnapshotQuery) (page []Snapshot, err error) {
	for where, err := range cat.SnapshotPaths(after) {
		if err := errors.Join(err, ctx.Err()); err != nil || q.Max > 0 && len(page) > q.Max {
			return page, err
		}
		snap, err := readSnapshot(cat, where)
		var broken *catalog.BrokenError
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case errors.As(err, &broken): // it must not hide all others
			klog.FromContext(ctx).Error(err, "A record cannot be read; its snapshot is not listed", "place", where)
		case err != nil:
			return nil, err
		case q.Source == nil || snap.isOf(*q.Source):
			page = append(page, snap)
		}
	}
	return page, nil
}

func readSnapshot(cat session.Records, where string) (Snapshot, error) {
	rec, err := cat.ReadSnapshot(where)
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(rec)
}

func (s Snapshot) isOf(source volume.ID) bool {
	id, err := volume.ParseID(s.SourceID)
	return err == nil && sameVolume(id, source)
}
