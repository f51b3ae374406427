package store

import (
	"cmp"
	"slices"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
)

func (l *lab) mustKnow(t *testing.T, s *Store, want ...SnapshotContent) {
	t.Helper()
	byID := func(a, b SnapshotContent) int { return cmp.Compare(a.ID.String(), b.ID.String()) }
	got := slices.SortedFunc(slices.Values(s.SnapshotContents()), byID)
	slices.SortFunc(want, byID)
	if !slices.Equal(got, want) {
		t.Errorf("known are %+v, want %+v", got, want)
	}
}

func contentOf(s Snapshot, bytes, entries int64) SnapshotContent {
	return SnapshotContent{s.ID, bytes, entries}
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
	later.reclaim.resume(l.export, nil)
	later.reclaim.wg.Wait()
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
	l.reclaim.wg.Wait()
	err = l.onCatalog(t, func(_ *share.Handle, cat *catalog.Catalog) error {
		return l.contents.refresh(t.Context(), l.export, cat)
	})
	if err != nil {
		t.Error(err)
	}
	l.mustKnow(t, l.Store, contentOf(made, 0, 0))
}
