package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
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
// on and on that of the source, ordered by export and name. The token names the
// last one of a page, so that it stays good whatever comes and goes.
//
// Errors: volume.ErrToken, those of share.Cache.
func (s *Store) ListSnapshots(ctx context.Context, q SnapshotQuery) (page []Snapshot, next string, err error) {
	after, err := parseToken(q.Token)
	if err != nil {
		return nil, "", err
	}
	if q.Source != nil {
		s.exports.add(q.Source.Export)
	}
	for _, export := range s.exports.list() {
		if export.String() < after.export {
			continue
		}
		name := ""
		if export.String() == after.export {
			name = after.name
		}
		more, err := s.snapshotsOn(ctx, export, name, q)
		if err != nil {
			return nil, "", fmt.Errorf("list snapshots on %s: %w", export, err)
		}
		page = append(page, more...)
		if q.Max > 0 && len(page) > q.Max {
			page = page[:q.Max]
			last := page[q.Max-1].ID
			return page, position{last.Export.String(), last.Name}.token(), nil
		}
	}
	return page, "", nil
}

// snapshotsOn lists one export after a name, and one more than fit on a page.
func (s *Store) snapshotsOn(ctx context.Context, export volume.Export, after string, q SnapshotQuery) (page []Snapshot, err error) {
	// Not a snapshot's lock: only what is whole is there to be seen.
	k := key{export, volume.MetaDir}
	err = s.withVolume(ctx, k, s.anyShare(export, s.options(q.MountOptions)), func(ctx context.Context, h *share.Handle) error {
		return withCatalog(h, func(cat *catalog.Catalog) error {
			names, err := cat.SnapshotNames()
			if err != nil {
				return err
			}
			at, found := slices.BinarySearch(names, after)
			if found {
				at++
			}
			for _, name := range names[at:] {
				if err := ctx.Err(); err != nil || q.Max > 0 && len(page) > q.Max {
					return err
				}
				snap, err := readSnapshot(cat, name)
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil {
					return err
				}
				if q.Source == nil || snap.isOf(*q.Source) {
					page = append(page, snap)
				}
			}
			return nil
		})
	})
	return page, err
}

func readSnapshot(cat *catalog.Catalog, name string) (Snapshot, error) {
	rec, err := cat.ReadSnapshot(name)
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(rec)
}

func (s Snapshot) isOf(source volume.ID) bool {
	id, err := volume.ParseID(s.SourceID)
	return err == nil && sameVolume(id, source)
}

// position is the last snapshot of a page.
type position struct{ export, name string }

func (p position) token() string {
	return base64.RawURLEncoding.EncodeToString([]byte(p.export + "#" + p.name))
}

func parseToken(token string) (position, error) {
	if token == "" {
		return position{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	export, name, ok := strings.Cut(string(b), "#")
	if err != nil || !ok || export == "" || name == "" {
		return position{}, fmt.Errorf("%w: %q", volume.ErrToken, token)
	}
	return position{export, name}, nil
}
