package store

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/store/reclaim"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// later moves what would be abandoned an hour from now to the trash, and empties it.
func (l *lab) later(t *testing.T) {
	t.Helper()
	l.reclaimWith(t, reclaim.Config{AbandonedAfter: -reclaim.AbandonedAfter})
	l.reclaim.Kick(session.Target{Key: session.Key{Export: l.export}})
	l.reclaim.Wait()
	for _, b := range l.Backlog() {
		if b.Trees != 0 {
			t.Errorf("backlog %+v, want no tree", b)
		}
	}
}

func (l *lab) onCatalog(t *testing.T, do func(*session.Session) error) error {
	return l.exports.Do(t.Context(), l.target(l.export, "", nil), func(_ context.Context, x *session.Session) error { return do(x) })
}

// A copy whose process stalled for so long that it counts as abandoned is not put in
// its place.
func TestAbandonedCopyIsEnded(t *testing.T) {
	for at, call := range map[string]func(context.Context, *lab, volume.ID) error{
		"move copy into place": func(ctx context.Context, l *lab, from volume.ID) error {
			req := l.request("clone")
			req.Source = &Source{Volume: &from}
			_, err := l.Create(ctx, req)
			return err
		},
		"move snapshot into place": func(ctx context.Context, l *lab, from volume.ID) error {
			_, err := l.CreateSnapshot(ctx, SnapshotRequest{Name: "snap", Source: from})
			return err
		},
		"move group into place": func(ctx context.Context, l *lab, from volume.ID) error {
			_, err := l.CreateGroup(ctx, GroupRequest{Name: "group", Sources: []Handle{{ID: from, Text: from.String()}}, AllowWrites: true})
			return err
		},
	} {
		t.Run(at, func(t *testing.T) {
			l := newLab(t)
			from := l.create(t, "source")
			l.put(t, "source/file")
			l.held(at, func(context.Context) { l.later(t) })
			if err := call(t.Context(), l, from); !errors.Is(err, volume.ErrInProgress) {
				t.Errorf("got %v, want ErrInProgress", err)
			}
			l.mustHave(t, append(live("source"), "source/file")...)
			if err := call(t.Context(), l, from); err != nil {
				t.Errorf("the repeated call: %v", err)
			}
		})
	}
}

// What a killed delete quarantined is kept while a volume has no other directory.
func TestQuarantinedDirectoryOfAVolumeIsKept(t *testing.T) {
	for _, subDir := range []string{"data", "team/da.ta-1%"} {
		l := newLab(t)
		id := l.createAs(t, l.classed("pvc-1", subDir, volume.OnDeleteDelete))
		l.put(t, path.Join(subDir, "precious"))
		ctx, killed := l.killAt(t.Context(), l.Store, 2)
		if err := l.Delete(ctx, id, nil); err == nil || !killed() {
			t.Fatalf("not killed: %v", err)
		}
		l.Store = l.start(t)
		l.later(t)
		quarantined, err := filepath.Glob(filepath.Join(l.dir, ".nfs-csi/tmp/deleted*/precious"))
		if err != nil || len(quarantined) != 1 {
			t.Errorf("%s: quarantined are %q, %v", subDir, quarantined, err)
		}
		l.delete(t, id)
		l.mustHave(t)
	}
}
