package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func (l *lab) record(t *testing.T, subDir string) catalog.Record {
	t.Helper()
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	cat, err := catalog.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer cat.Close()
	rec, err := cat.Read(subDir)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestExpand(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1") // of 1 GiB
	l.put(t, "legacy/data")
	for _, tt := range []struct {
		id   volume.ID
		size SizeRange
		want int64
		err  error
	}{
		{id, SizeRange{Required: 2 << 30}, 2 << 30, nil},
		{id, SizeRange{Required: 2 << 30}, 2 << 30, nil},
		{id, SizeRange{Required: 1}, 2 << 30, nil}, // a volume does not shrink
		{id, SizeRange{Limit: 4 << 30}, 2 << 30, nil},
		{id, SizeRange{Required: 1, Limit: 1 << 30}, 0, volume.ErrOutOfRange},
		{id, SizeRange{Required: 2, Limit: 1}, 0, volume.ErrOutOfRange},
		{id, SizeRange{Required: -1}, 0, volume.ErrInvalid},
		{id, SizeRange{}, 0, volume.ErrInvalid},
		{l.id("legacy"), SizeRange{Required: 5}, 5, nil},
		{l.id("none"), SizeRange{Required: 5}, 0, volume.ErrNotFound},
		{volume.ID{Export: l.export, SubDir: "pvc-1", Name: "other"}, SizeRange{Required: 5}, 0, volume.ErrNotFound},
	} {
		got, err := l.Expand(t.Context(), tt.id, tt.size, nil)
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s to %s: %d, %v, want %d, %v", tt.id, tt.size, got, err, tt.want, tt.err)
		}
	}
	if v, err := l.Get(t.Context(), id, nil); err != nil || v.Capacity != 2<<30 {
		t.Errorf("got %+v, %v", v, err)
	}
	l.mustHave(t, append(live("pvc-1"), "legacy", "legacy/data")...)
}

func TestModify(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	change := volume.Mutable{OnDelete: volume.OnDeleteArchive, Mode: 0o2750}
	for n := 1; ; n++ { // killed at each step and repeated
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		err := l.Modify(ctx, id, change, nil)
		if !killed() {
			if err != nil || n < 3 {
				t.Fatalf("no step %d, and %v", n, err)
			}
			break
		}
		l.Store = l.start(t)
	}
	l.Store = l.start(t)
	if mode, _, _ := l.stat(t, "pvc-1"); mode != 0o2750 {
		t.Errorf("mode %s", mode)
	}
	// What is not said stays.
	if err := l.Modify(t.Context(), id, volume.Mutable{Mode: 0o700}, nil); err != nil {
		t.Error(err)
	}
	if rec := l.record(t, "pvc-1"); rec.OnDelete != volume.OnDeleteArchive || rec.Mode != 0o700 || rec.Capacity != 1<<30 {
		t.Errorf("the record says %+v", rec)
	}
	l.create(t, "pvc-1") // still the same volume to its class
	l.delete(t, id)
	l.mustHave(t, "archived-pvc-1")
	if err := l.Modify(t.Context(), id, change, nil); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("gone: %v, want ErrNotFound", err)
	}
}

func TestModifyOfAPredecessor(t *testing.T) {
	l := newLab(t)
	l.put(t, "legacy/data")
	id := l.id("legacy")
	if err := l.Modify(t.Context(), id, volume.Mutable{OnDelete: volume.OnDeleteRetain}, nil); err != nil {
		t.Fatal(err)
	}
	l.mustHave(t, append(live("legacy"), "legacy/data")...)
	l.delete(t, id)
	l.mustHave(t, "legacy", "legacy/data", retained(t, "legacy"))
}

func TestModifyFollowsNoSymlink(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.create(t, "victim")
	if err := os.Remove(filepath.Join(l.dir, "pvc-1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("victim", filepath.Join(l.dir, "pvc-1")); err != nil {
		t.Fatal(err)
	}
	if err := l.Modify(t.Context(), id, volume.Mutable{Mode: 0o700}, nil); err == nil {
		t.Error("the mode of a symlink was changed")
	}
	if mode, _, _ := l.stat(t, "victim"); mode != 0o777 {
		t.Errorf("that of another volume became %s", mode)
	}
}

// The free space of an export has nothing to do with what is in its catalog.
func TestCapacityWithoutACatalog(t *testing.T) {
	l := newLab(t)
	l.put(t, ".nfs-csi") // a file
	if free, err := l.Capacity(t.Context(), l.export, nil); err != nil || free <= 0 {
		t.Errorf("%d bytes, %v", free, err)
	}
}

func TestRecordWithoutAValidIDIsRefused(t *testing.T) {
	l := newLab(t)
	l.create(t, "pvc-1")
	rec := l.record(t, "pvc-1")
	rec.ID = "none"
	if err := l.onCatalog(t, func(x *session.Session) error { return x.Cat.Replace(rec) }); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(l.dir, "pvc-1")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Create(t.Context(), l.request("pvc-1")); !errors.Is(err, volume.ErrForeignID) {
		t.Errorf("got %v, want ErrForeignID", err)
	}
	if _, err := os.Lstat(filepath.Join(l.dir, "pvc-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made for it: %v", err)
	}
}
