package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// sharing is a request for a claim of a class with shared: "true".
func (l *lab) sharing(name, subDir string) CreateRequest {
	req := l.classed(name, subDir, "")
	req.Params.Shared = true
	return req
}

// shared is what is on the server of a shared directory and its volumes.
func shared(dir string, names ...string) []string {
	files := live(dir)
	for _, name := range names {
		at := ".nfs-csi/volumes/" + dir + "/" + name
		files = append(files, at, at+"/.record.json", ".nfs-csi/names/"+name)
	}
	return files
}

// All claims get the one directory, each as a volume of its own that comes and goes
// without it.
func TestShared(t *testing.T) {
	l := newLab(t)
	l.cfg.OnDelete = volume.OnDeleteDelete
	req := l.sharing("pvc-1", "data")
	req.Params.Mode = 0o2755
	one := l.createAs(t, req)
	if mode, _, _ := l.stat(t, "data"); mode != 0o2755 || one.String() != "nfs.test#export#data#pvc-1#retain" {
		t.Errorf("made %s with mode %s", one, mode)
	}
	l.put(t, "data/file")
	req.Name, req.Params.Mode, req.Size = "pvc-2", 0o700, SizeRange{}
	two := l.createAs(t, req)
	if again := l.createAs(t, req); again != two || two == one {
		t.Errorf("two is %s, then %s", two, again)
	}
	if mode, _, _ := l.stat(t, "data"); mode != 0o2755 {
		t.Errorf("the second claim gave it mode %s", mode)
	}
	l.mustHave(t, append(shared("data", "pvc-1", "pvc-2"), "data/file")...)
	l.delete(t, one)
	l.delete(t, one)
	l.mustHave(t, append(shared("data", "pvc-2"), "data/file")...)
	l.delete(t, two)
	l.mustHave(t, append(shared("data"), "data/file")...)
	l.createAs(t, req)
	l.mustHave(t, append(shared("data", "pvc-2"), "data/file")...)
}

// A directory for each namespace, and one that was there before.
func TestSharedByNamespace(t *testing.T) {
	l := newLab(t)
	l.put(t, "a/data/file")
	for name, namespace := range map[string]string{"pvc-1": "a", "pvc-2": "b", "pvc-3": "a"} {
		req := l.sharing(name, "${pvc.metadata.namespace}/data")
		req.Params.Metadata = map[string]string{volume.KeyPVCNamespace: namespace}
		l.createAs(t, req)
	}
	want := append(shared("a/data", "pvc-1", "pvc-3"), shared("b/data", "pvc-2")...)
	l.mustHave(t, append(want, "a", "a/data/file", "b", ".nfs-csi/volumes/a", ".nfs-csi/volumes/b")...)
	// What is never adopted is not shared either.
	l.put(t, "archived-x/secret")
	l.put(t, "left/file")
	refused := l.sharing("pvc-4", "left")
	refused.Params.NoAdopt = true
	l.mustRefuse(t, refused, `adopt: "false"`)
	l.mustRefuse(t, l.sharing("pvc-4", "archived-x"), "archived-*")
}

// A directory that claims share is no volume's, nor what is around or in it; a
// volume's is not shared.
func TestSharedOrExclusive(t *testing.T) {
	l := newLab(t)
	id := l.createAs(t, l.sharing("pvc-1", "team/data"))
	l.createAs(t, l.classed("pvc-2", "own/data", ""))
	l.put(t, "team/data/pvc-1/file") // looks like the place of the record
	before := l.files(t)
	refuse := func(req CreateRequest) {
		t.Helper()
		if _, err := l.Create(t.Context(), req); !errors.Is(err, volume.ErrOwned) {
			t.Errorf("%s: %v, want ErrOwned", req.Params.SubDir, err)
		}
	}
	for range 2 { // also when no claim has it any more
		for _, subDir := range []string{"team/data", "team", "team/data/x", "team/data/pvc-1", "team/data/pvc-1/x"} {
			refuse(l.classed("pvc-3", subDir, ""))
		}
		for _, subDir := range []string{"team", "team/data/x", "team/data/pvc-1"} {
			refuse(l.sharing("pvc-3", subDir))
		}
		for _, subDir := range []string{"own/data", "own", "own/data/x"} {
			refuse(l.sharing("pvc-3", subDir))
		}
		if before != nil {
			l.mustHave(t, before...)
		}
		l.delete(t, id)
		before = nil
	}
	if _, err := os.Stat(filepath.Join(l.dir, "team/data/pvc-1/file")); err != nil {
		t.Error(err)
	}
}

// What a predecessor's volume of that directory says of deleting it does not count.
func TestSharedOutlivesALegacyVolume(t *testing.T) {
	l := newLab(t)
	l.put(t, "data/file")
	l.createAs(t, l.sharing("pvc-1", "data"))
	for _, id := range []volume.ID{l.id("data"), {Export: l.export, SubDir: "data", Name: "pvc-9", OnDelete: volume.OnDeleteArchive}} {
		l.delete(t, id)
	}
	l.mustHave(t, append(shared("data", "pvc-1"), "data/file")...)
}

// A volume of a shared directory can be got, expanded, listed and looked after like
// any other; what is not its own it cannot change.
func TestUseOfSharedVolumes(t *testing.T) {
	l := newLab(t)
	l.create(t, "a")
	one, two := l.createAs(t, l.sharing("pvc-1", "m/data")), l.createAs(t, l.sharing("pvc-2", "m/data"))
	l.create(t, "z")
	if size, err := l.Expand(t.Context(), one, SizeRange{Required: 5 << 30}, nil); err != nil || size != 5<<30 {
		t.Errorf("expanded to %d, %v", size, err)
	}
	for id, want := range map[volume.ID]int64{one: 5 << 30, two: 1 << 30} {
		if got, err := l.Get(t.Context(), id, nil); err != nil || got.Capacity != want {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
	if err := l.Modify(t.Context(), one, volume.Mutable{Mode: 0o700}, nil); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("modified: %v, want ErrInvalid", err)
	}
	want := []string{"nfs.test#export#a##delete", one.String(), two.String(), "nfs.test#export#z##delete"}
	for limit := range 6 {
		if got := l.listIDs(t, limit); !slices.Equal(got, want) {
			t.Errorf("by %d listed are %q, want %q", limit, got, want)
		}
	}
	if err := os.RemoveAll(filepath.Join(l.dir, "m")); err != nil {
		t.Fatal(err)
	}
	page, err := l.ListHealth(t.Context(), 0, "")
	if err != nil || len(page.Volumes) != 2 || page.Volumes[0].ID != one.String() || page.Volumes[1].ID != two.String() {
		t.Errorf("unhealthy are %+v, %v", page, err)
	}
	for _, id := range []volume.ID{{Export: l.export, SubDir: "m/data", Name: "pvc-9"}, l.id("m/data")} {
		if _, err := l.Get(t.Context(), id, nil); !errors.Is(err, volume.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", id, err)
		}
	}
	// And the next claim makes it again.
	l.createAs(t, l.sharing("pvc-3", "m/data"))
	if found, err := l.Health(t.Context(), one, nil); err != nil || found != nil {
		t.Errorf("health %+v, %v", found, err)
	}
}

func (l *lab) listIDs(t *testing.T, limit int) (ids []string) {
	t.Helper()
	for token := ""; ; {
		page, err := l.List(t.Context(), limit, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page.Volumes {
			ids = append(ids, v.ID.String())
		}
		if token = page.Next; token == "" {
			return ids
		}
	}
}

// Everybody who has the directory can copy it, and nobody can make it a copy.
func TestCopyOfSharedVolumes(t *testing.T) {
	l := newLab(t)
	one, two := l.createAs(t, l.sharing("pvc-1", "data")), l.createAs(t, l.sharing("pvc-2", "data"))
	l.put(t, "data/file")
	blocked, release := l.blockAt("copy")
	done := make(chan error, 1)
	go func() {
		_, err := l.CreateSnapshot(t.Context(), l.snapshotReq("snap", one))
		done <- err
	}()
	select {
	case <-blocked:
		l.delete(t, two) // takes nothing from the copy
		release()
	case err := <-done:
		t.Fatalf("no copy: %v", err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := l.Create(t.Context(), l.from("clone", Source{Volume: &one})); err != nil || l.content(t, "clone/file") != "data/file" {
		t.Errorf("cloned: %v", err)
	}
	copied := l.sharing("pvc-3", "other")
	copied.Source = &Source{Volume: &one}
	mutable := l.sharing("pvc-3", "other")
	mutable.Mutable.OnDelete = volume.OnDeleteDelete
	for says, req := range map[string]CreateRequest{"data source": copied, "onDelete and mountPermissions": mutable} {
		if _, err := l.Create(t.Context(), req); !errors.Is(err, volume.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want ErrInvalid saying %q", err, says)
		}
	}
	if _, err := os.Stat(filepath.Join(l.dir, "other")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
}
