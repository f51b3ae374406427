package nfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// What one controller has seen a moment ago another one has changed since. The
// kernel believes what it saw; what a call decides by must not be that.
func TestControllersTakeTurns(t *testing.T) {
	tests := map[string]func(t *testing.T, w *turns){
		"a volume that was not there is deleted":           newSinceDeleted,
		"a volume that was there is made again":            goneSinceMade,
		"a policy that was not there is honoured":          policySince,
		"a policy that has changed":                        policyChangedSince,
		"a volume around another":                          aroundSince,
		"a volume within another":                          withinSince,
		"a name that has got a directory":                  directorySince,
		"a snapshot that was not there":                    snapshotSince,
		"a snapshot that is gone":                          snapshotGoneSince,
		"an archive that was not there":                    archiveSince,
		"a retained directory is adopted with what it has": adoptedSince,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { takeTurns(t, "vers=4.2", test) })
	}
	for _, name := range []string{"a volume that was there is made again", "a volume that was not there is deleted", "an archive that was not there"} {
		t.Run(name+" vers=3", func(t *testing.T) { takeTurns(t, "vers=3", tests[name]) })
	}
}

func takeTurns(t *testing.T, version string, test func(t *testing.T, w *turns)) {
	t.Helper()
	e, dir := export(t, clientVersions()[version], "rw,no_root_squash", 0o777)
	s := controllers(t, 2, version)
	test(t, &turns{a: s[0], b: s[1], e: e, dir: dir, version: version})
}

type turns struct {
	a, b         *store.Store
	e            volume.Export
	dir, version string
}

func (w *turns) id(subDir, name string) volume.ID {
	return volume.ID{Export: w.e, SubDir: subDir, Name: name}
}

func (w *turns) create(t *testing.T, s *store.Store, name, subDir string) {
	t.Helper()
	req := clientRequest(w.e, name, w.version)
	req.Params.SubDir = subDir
	if _, err := s.Create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

func (w *turns) delete(t *testing.T, s *store.Store, subDir, name string) {
	t.Helper()
	if err := s.Delete(t.Context(), w.id(subDir, name), nil); err != nil {
		t.Fatal(err)
	}
}

func (w *turns) absent(t *testing.T, s *store.Store, subDir string) {
	t.Helper()
	if _, err := s.Get(t.Context(), w.id(subDir, subDir), []string{w.version, "nosharecache"}); !errors.Is(err, volume.ErrNotFound) {
		t.Fatal(err)
	}
}

func newSinceDeleted(t *testing.T, w *turns) {
	w.absent(t, w.a, "pvc-1")
	w.create(t, w.b, "pvc-1", "")
	w.delete(t, w.a, "pvc-1", "pvc-1")
	mustContain(t, w.dir)
}

func goneSinceMade(t *testing.T, w *turns) {
	w.create(t, w.a, "pvc-1", "")
	w.delete(t, w.b, "pvc-1", "pvc-1")
	w.create(t, w.a, "pvc-1", "")
	mustContain(t, w.dir, live("pvc-1")...)
}

func policySince(t *testing.T, w *turns) {
	w.absent(t, w.a, "pvc-1")
	w.create(t, w.b, "pvc-1", "")
	if err := w.b.Modify(t.Context(), w.id("pvc-1", "pvc-1"), volume.Mutable{OnDelete: volume.OnDeleteRetain}, nil); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*store.Store{w.a, w.b, w.a} { // that the ID says to delete does not count
		w.delete(t, s, "pvc-1", "pvc-1")
		mustContain(t, w.dir, "pvc-1", ".nfs-csi/retained/pvc-1")
	}
}

func policyChangedSince(t *testing.T, w *turns) {
	w.create(t, w.b, "pvc-1", "")
	if _, err := w.a.Get(t.Context(), w.id("pvc-1", "pvc-1"), []string{w.version, "nosharecache"}); err != nil {
		t.Fatal(err)
	}
	if err := w.b.Modify(t.Context(), w.id("pvc-1", "pvc-1"), volume.Mutable{OnDelete: volume.OnDeleteRetain}, nil); err != nil {
		t.Fatal(err)
	}
	w.delete(t, w.a, "pvc-1", "pvc-1")
	mustContain(t, w.dir, "pvc-1", ".nfs-csi/retained/pvc-1")
}

func aroundSince(t *testing.T, w *turns) {
	w.create(t, w.a, "pvc-1", "team")
	w.delete(t, w.a, "team", "pvc-1")
	w.create(t, w.b, "pvc-2", "team/data")
	req := clientRequest(w.e, "pvc-1", w.version)
	req.Params.SubDir = "team"
	if _, err := w.a.Create(t.Context(), req); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("got %v, want ErrOwned", err)
	}
}

func withinSince(t *testing.T, w *turns) {
	w.create(t, w.a, "pvc-1", "team/a")
	w.delete(t, w.b, "team/a", "pvc-1")
	w.create(t, w.b, "pvc-2", "team")
	req := clientRequest(w.e, "pvc-3", w.version)
	req.Params.SubDir = "team/b"
	_, err := w.a.Create(t.Context(), req)
	if errors.Is(err, volume.ErrStale) {
		_, err = w.a.Create(t.Context(), req)
	}
	if !errors.Is(err, volume.ErrOwned) {
		t.Errorf("got %v, want ErrOwned", err)
	}
}

func directorySince(t *testing.T, w *turns) {
	w.create(t, w.a, "pvc-1", "dir-a")
	w.delete(t, w.a, "dir-a", "pvc-1")
	w.create(t, w.b, "pvc-1", "dir-b")
	req := clientRequest(w.e, "pvc-1", w.version)
	req.Params.SubDir = "dir-a"
	if _, err := w.a.Create(t.Context(), req); !errors.Is(err, volume.ErrIncompatible) {
		t.Errorf("got %v, want ErrIncompatible", err)
	}
}

func (w *turns) snapshot(t *testing.T, s *store.Store) store.Snapshot {
	t.Helper()
	made, err := s.CreateSnapshot(t.Context(), store.SnapshotRequest{Name: "snap", Source: w.id("pvc-1", "pvc-1")})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func snapshotSince(t *testing.T, w *turns) {
	w.create(t, w.a, "pvc-1", "")
	id := volume.SnapshotID{Export: w.e, Name: "snap", Source: "pvc-1"}
	if _, err := w.a.GetSnapshot(t.Context(), id, nil); !errors.Is(err, volume.ErrSnapshotNotFound) {
		t.Fatal(err)
	}
	made := w.snapshot(t, w.b)
	if again := w.snapshot(t, w.a); again != made {
		t.Errorf("it became %+v, it was %+v", again, made)
	}
	if err := w.a.DeleteSnapshot(t.Context(), id, nil); err != nil {
		t.Error(err)
	}
	mustContain(t, w.dir, live("pvc-1")...)
}

func snapshotGoneSince(t *testing.T, w *turns) {
	w.create(t, w.a, "pvc-1", "")
	made := w.snapshot(t, w.a)
	if err := w.b.DeleteSnapshot(t.Context(), made.ID, nil); err != nil {
		t.Fatal(err)
	}
	req := clientRequest(w.e, "pvc-2", w.version)
	req.Source = &store.Source{Snapshot: &made.ID}
	if _, err := w.a.Create(t.Context(), req); !errors.Is(err, volume.ErrSnapshotNotFound) {
		t.Errorf("restore: %v, want ErrSnapshotNotFound", err)
	}
	again := w.snapshot(t, w.a)
	if _, err := w.b.GetSnapshot(t.Context(), again.ID, nil); err != nil {
		t.Errorf("the snapshot made anew: %v", err)
	}
	if err := w.b.DeleteSnapshot(t.Context(), made.ID, nil); err != nil {
		t.Error(err)
	}
	mustContain(t, w.dir, live("pvc-1")...)
}

func archiveSince(t *testing.T, w *turns) {
	for i, s := range []*store.Store{w.a, w.b, w.a} {
		req := clientRequest(w.e, "pvc-1", w.version)
		req.Params.SubDir, req.Params.OnDelete = "team/data", volume.OnDeleteArchive
		if _, err := s.Create(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if i > 0 { // an empty one could be renamed over
			if err := os.WriteFile(filepath.Join(w.dir, "team/data/f"), []byte{byte(i)}, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		w.delete(t, s, "team/data", "pvc-1")
	}
	mustContain(t, w.dir, "team", "team/archived-data",
		"team/archived-data.pvc-1", "team/archived-data.pvc-1/f", "team/archived-data.pvc-1.2", "team/archived-data.pvc-1.2/f")
}

func adoptedSince(t *testing.T, w *turns) {
	w.absent(t, w.a, "pvc-1")
	if err := os.Mkdir(filepath.Join(w.dir, "pvc-1"), 0o750); err != nil {
		t.Fatal(err)
	}
	w.create(t, w.a, "pvc-1", "")
	if mode, _, _ := owner(t, filepath.Join(w.dir, "pvc-1")); mode != 0o750 {
		t.Errorf("the kept directory now has mode %s", mode)
	}
	mustContain(t, w.dir, live("pvc-1")...)
}
