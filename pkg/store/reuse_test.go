package store

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const perClaim = "${pvc.metadata.namespace}/${pvc.metadata.name}"

// claimed is a request for a claim of a class with reuse: claim, named as
// csi-provisioner names volumes: by the claim's UID.
func (l *lab) claimed(name, namespace, claim string) CreateRequest {
	req := l.classed(name, perClaim, volume.OnDeleteDelete)
	req.Params.Reuse = true
	req.Params.Metadata = map[string]string{volume.KeyPVCNamespace: namespace, volume.KeyPVCName: claim}
	return req
}

// newCluster is newLab with controllers of a cluster of that name.
func newCluster(t *testing.T, id string) *lab {
	t.Helper()
	l := newLab(t)
	l.clusterID = id
	l.Store = l.start(t)
	return l
}

// inCluster is a controller of another cluster on the same export.
func (l *lab) inCluster(t *testing.T, id string) *Store {
	t.Helper()
	before := l.clusterID
	l.clusterID = id
	defer func() { l.clusterID = before }()
	return l.start(t)
}

// owner is the volume whose record the directory has.
func (l *lab) mustOwn(t *testing.T, subDir, name string) {
	t.Helper()
	if rec := l.record(t, subDir); rec.Name != name {
		t.Errorf("%s is that of %q, want %s", subDir, rec.Name, name)
	}
}

// A claim that is made again gets its directory back, with content, mode and owner,
// and the old volume's deletion leaves it alone.
func TestReuse(t *testing.T) {
	l := newCluster(t, "one")
	first := l.createAs(t, l.claimed("pvc-1", "a", "x"))
	l.put(t, "a/x/file")
	if err := os.Chmod(filepath.Join(l.dir, "a/x"), 0o710); err != nil {
		t.Fatal(err)
	}
	req := l.claimed("pvc-2", "a", "x")
	req.Params.Mode, req.Params.NoAdopt = 0o777, true
	req.Size = SizeRange{Required: 1 << 20} // smaller: what is asked for now counts
	for range 2 {
		second, err := l.Create(t.Context(), req)
		if err != nil || second.ID.SubDir != "a/x" || second.ID.Name != "pvc-2" || second.Capacity != 1<<20 {
			t.Fatalf("made %+v, %v", second, err)
		}
	}
	if mode, _, _ := l.stat(t, "a/x"); mode != 0o710 {
		t.Errorf("its mode became %s", mode)
	}
	if rec := l.record(t, "a/x"); rec.ReusedFrom != first.String() || rec.ClusterID != "one" || !rec.Adopted {
		t.Errorf("its record is %+v", rec)
	}
	if _, err := l.Get(t.Context(), first, nil); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("the volume before: %v, want that it is gone", err)
	}
	l.delete(t, first)
	note := ".nfs-csi/" + catalog.ReusePath("a/x")
	want := append(live("a/x"), "a", ".nfs-csi/volumes/a", "a/x/file", ".nfs-csi/names/pvc-2", ".nfs-csi/reuse", note)
	l.mustHave(t, want...)
	l.delete(t, volume.ID{Export: l.export, SubDir: "a/x", Name: "pvc-2"})
	l.mustHave(t, ".nfs-csi/reuse")
}

// Only the same claim of the same cluster is the same.
func TestReuseOfAnotherClaim(t *testing.T) {
	l := newCluster(t, "one")
	req := l.claimed("pvc-1", "a", "x")
	req.Params.SubDir = "${pvc.metadata.name}"
	l.createAs(t, req)
	l.put(t, "x/file")
	before := l.files(t)
	same := func(name, namespace string) CreateRequest {
		other := l.claimed(name, namespace, "x")
		other.Params.SubDir = "${pvc.metadata.name}"
		return other
	}
	without := same("pvc-2", "a")
	without.Params.Reuse = false
	for says, ask := range map[string]func() error{
		`in the cluster "one"`: func() error { _, err := l.inCluster(t, "two").Create(t.Context(), same("pvc-2", "a")); return err },
		`subDir "${pvc.metadata.name}" is the same directory for the claims a/x and b/x`: func() error {
			_, err := l.Create(t.Context(), same("pvc-2", "b"))
			return err
		},
		"a class with reuse: claim":       func() error { _, err := l.Create(t.Context(), without); return err },
		".nfs-csi/volumes/x/.record.json": func() error { _, err := l.Create(t.Context(), without); return err },
		"source": func() error {
			id := l.id("x")
			clone := same("pvc-2", "a")
			clone.Source = &Source{Volume: &id}
			_, err := l.Create(t.Context(), clone)
			return err
		},
	} {
		err := ask()
		if !errors.Is(err, volume.ErrOwned) || says != "source" && !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want ErrOwned saying %q", err, says)
		}
	}
	l.mustHave(t, before...)
	l.mustOwn(t, "x", "pvc-1")
}

// Nor is one of which the record does not say enough.
func TestReuseNeedsToKnow(t *testing.T) {
	l := newCluster(t, "one")
	for name, change := range map[string]func(*catalog.Record){
		"no cluster": func(r *catalog.Record) { r.ClusterID = "" },
		"no claim":   func(r *catalog.Record) { r.Metadata = nil },
		"half":       func(r *catalog.Record) { r.Metadata = map[string]string{volume.KeyPVCName: "x"} },
	} {
		id := l.createAs(t, l.claimed("pvc-1", "a", "x"))
		rec := l.record(t, "a/x")
		rec.Metadata = maps.Clone(rec.Metadata)
		change(&rec)
		if err := l.onCatalog(t, func(x *session.Session) error { return x.Cat.Replace(rec) }); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Create(t.Context(), l.claimed("pvc-2", "a", "x")); !errors.Is(err, volume.ErrOwned) {
			t.Errorf("%s: %v, want ErrOwned", name, err)
		}
		l.mustOwn(t, "a/x", "pvc-1")
		l.delete(t, id)
	}
	nameless := l.claimed("pvc-1", "a", "x")
	nameless.Params.SubDir, nameless.Params.Metadata = "x", nil
	if _, err := l.Create(t.Context(), nameless); !errors.Is(err, volume.ErrInvalid) || !strings.Contains(err.Error(), "--extra-create-metadata") {
		t.Errorf("without the claim's name: %v", err)
	}
	if _, err := l.inCluster(t, "").Create(t.Context(), l.claimed("pvc-1", "a", "x")); !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), "--cluster-id") {
		t.Errorf("without a cluster ID: %v", err)
	}
	l.mustHave(t)
}

// A directory that nobody owns is adopted by a class with reuse as by any other.
func TestReuseAdoptsWhatWasRetained(t *testing.T) {
	l := newCluster(t, "one")
	id := l.createAs(t, l.claimed("pvc-1", "a", "x"))
	l.put(t, "a/x/file")
	if err := l.Modify(t.Context(), id, volume.Mutable{OnDelete: volume.OnDeleteRetain}, nil); err != nil {
		t.Fatal(err)
	}
	l.delete(t, id)
	l.createAs(t, l.claimed("pvc-2", "a", "x"))
	l.mustHaveAmong(t, append(live("a/x"), "a/x/file"))
	l.mustOwn(t, "a/x", "pvc-2")
}

// What is being copied is not taken over.
func TestReuseWaitsForACopy(t *testing.T) {
	l := newCluster(t, "one")
	id := l.createAs(t, l.claimed("pvc-1", "a", "x"))
	l.put(t, "a/x/file")
	blocked, release := l.blockAt("copy")
	done := make(chan error, 1)
	go func() {
		_, err := l.CreateSnapshot(t.Context(), l.snapshotReq("snap", id))
		done <- err
	}()
	<-blocked
	if _, err := l.Create(t.Context(), l.claimed("pvc-2", "a", "x")); !errors.Is(err, volume.ErrInUse) {
		t.Errorf("while it is copied: %v, want ErrInUse", err)
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	l.createAs(t, l.claimed("pvc-2", "a", "x"))
}
