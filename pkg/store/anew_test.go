package store

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// stale makes the next job fail with ESTALE at this step, so that it is run again.
func (l *lab) stale(at string) { l.failing(at, unix.ESTALE, func(context.Context) {}) }

// What was copied before a copy began anew is not in it: a snapshot whose record
// counts it too could never be restored.
func TestCopiesBegunAnewAreWhole(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.put(t, "pvc-1/d/file")
	l.stale("move snapshot into place")
	s := l.snapshot(t, "snap-1", id)
	if want := int64(len("pvc-1/d/file")); s.Bytes != want {
		t.Errorf("the snapshot has %d bytes, want %d", s.Bytes, want)
	}
	l.stale("move copy into place")
	if _, err := l.Create(t.Context(), l.from("pvc-2", Source{Snapshot: &s.ID})); err != nil {
		t.Fatal(err)
	}
	if got := l.content(t, "pvc-2/d/file"); got != "pvc-1/d/file" {
		t.Errorf("restored %q", got)
	}
	l.mustHaveNoTemp(t)
}

// A listing that is run again returns one result and releases what it holds.
func TestListingBegunAnew(t *testing.T) {
	l := newLab(t)
	l.create(t, "pvc-1")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 {
		calls := 0
		got, err := session.Result(ctx, l.exports.View, l.target(l.export, volume.MetaDir, nil),
			func(context.Context, *session.Session) (int, error) {
				if calls++; calls == 1 {
					return 1, unix.ESTALE
				}
				return 2, nil
			})
		if err != nil || got != 2 {
			t.Errorf("got %d, %v, want what was found in the end", got, err)
		}
	}
	if got := l.listAll(t, 0); len(got) != 1 {
		t.Errorf("after it: %v", got)
	}
}

func TestBrokenSnapshotRecordHidesNoOthers(t *testing.T) {
	for name, text := range map[string]string{
		"no record":      "{",
		"of another ID":  `{"version": 1, "name": "snap-2", "id": "of a later version", "sourceID": "nfs.test#export#pvc-1"}`,
		"of a later one": `{"version": 1000}`,
	} {
		l := newLab(t)
		id := l.create(t, "pvc-1")
		for _, name := range []string{"snap-1", "snap-2", "snap-3"} {
			l.snapshot(t, name, id)
		}
		broken, err := filepath.Glob(filepath.Join(l.dir, ".nfs-csi/snapshots/snap-2/*.json"))
		if err != nil || len(broken) != 1 {
			t.Fatalf("records %v, %v", broken, err)
		}
		if err := os.WriteFile(broken[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		page, _, err := l.ListSnapshots(t.Context(), inventory.SnapshotQuery{})
		if err != nil || len(page) != 2 || page[0].ID.Name != "snap-1" || page[1].ID.Name != "snap-3" {
			t.Errorf("%s: listed %+v, %v, want the two that can be read", name, page, err)
		}
	}
}

// A panic fails its call, but neither the process nor other calls.
func TestPanicsEndOneCall(t *testing.T) {
	l := newLab(t)
	l.held("write record", func(context.Context) { panic("write record") })
	if _, err := l.Create(t.Context(), l.request("pvc-1")); err == nil || !strings.Contains(err.Error(), "panic: write record") {
		t.Errorf("create: %v", err)
	}
	id := l.create(t, "pvc-1")
	l.held("copy", func(context.Context) { panic("copy") })
	if _, err := l.CreateSnapshot(t.Context(), l.snapshotReq("snap-1", id)); err == nil || !strings.Contains(err.Error(), "panic: copy") {
		t.Errorf("snapshot: %v", err)
	}
	l.snapshot(t, "snap-1", id)
}
