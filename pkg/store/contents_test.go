package store

import (
	"cmp"
	"slices"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
)

func (l *lab) mustKnow(t *testing.T, s *Store, want ...inventory.SnapshotContent) {
	t.Helper()
	byID := func(a, b inventory.SnapshotContent) int { return cmp.Compare(a.ID.String(), b.ID.String()) }
	got := slices.SortedFunc(slices.Values(s.SnapshotContents()), byID)
	slices.SortFunc(want, byID)
	if !slices.Equal(got, want) {
		t.Errorf("known are %+v, want %+v", got, want)
	}
}

func contentOf(s Snapshot, bytes, entries int64) inventory.SnapshotContent {
	return inventory.SnapshotContent{ID: s.ID, Bytes: bytes, Entries: entries}
}

func TestContentsOfSnapshots(t *testing.T) {
	l := newLab(t)
	id, other := l.create(t, "pvc-1"), l.create(t, "pvc-2")
	l.put(t, "pvc-1/d/file")
	size := int64(len("pvc-1/d/file"))
	s := l.snapshot(t, "s", id)
	g := l.group(t, "g", id, other)
	alone, first, second := contentOf(s, size, 2), contentOf(g.Members[0], size, 2), contentOf(g.Members[1], 0, 0)
	l.mustKnow(t, l.Store, alone, first, second)

	// A controller that comes up finds what is there, once it uses the export.
	later := l.start(t)
	l.mustKnow(t, later)
	later.reclaim.Resume(session.Target{Key: session.Key{Export: l.export}})
	later.reclaim.Wait()
	l.mustKnow(t, later, alone, first, second)

	// What the other one does it hears of at the next upkeep.
	if err := later.DeleteSnapshot(t.Context(), s.ID, nil); err != nil {
		t.Fatal(err)
	}
	l.mustKnow(t, later, first, second)
	l.mustKnow(t, l.Store, alone, first, second)
	if err := later.DeleteGroup(t.Context(), g.ID, nil, nil); err != nil {
		t.Fatal(err)
	}
	l.mustKnow(t, later)
	made, err := later.CreateSnapshot(t.Context(), l.snapshotReq("made", other))
	if err != nil {
		t.Fatal(err)
	}
	l.reclaim.Wait()
	l.refresh(t, l.inventory, 10)
	l.mustKnow(t, l.Store, contentOf(made, 0, 0))
}

// refresh reads at most a number of records, and tells whether that were all.
func (l *lab) refresh(t *testing.T, i *inventory.Inventory, records int) (complete bool) {
	t.Helper()
	err := l.onCatalog(t, func(x *session.Session) (err error) {
		complete, err = i.RefreshContents(t.Context(), x, func() bool { records--; return records < 0 })
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return complete
}

// What is to be removed does not wait for the records of all snapshots to be read.
func TestContentsGiveWay(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	for _, name := range []string{"a", "b", "c"} {
		l.snapshot(t, name, id)
	}
	other := inventory.New(inventory.Config{})
	for i, want := range []struct {
		known    int
		complete bool
	}{{2, false}, {3, true}, {3, true}} {
		if complete := l.refresh(t, other, 2); complete != want.complete || len(other.SnapshotContents()) != want.known {
			t.Errorf("after refresh %d: complete is %v, known are %+v", i+1, complete, other.SnapshotContents())
		}
	}
	later := l.start(t)
	waiting := true
	for _, want := range []int{0, 3} {
		err := l.onCatalog(t, func(x *session.Session) error {
			later.upkeep(t.Context(), x, func() bool { return waiting })
			return nil
		})
		if got := later.SnapshotContents(); err != nil || len(got) != want {
			t.Errorf("waiting=%v: known are %+v, %v", waiting, got, err)
		}
		waiting = false // it goes on at once, and not in an hour
	}
}
