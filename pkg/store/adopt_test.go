package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// mustRefuse asks for a volume in a directory that it must not get, and again, as
// Kubernetes does: nothing on the export changes.
func (l *lab) mustRefuse(t *testing.T, req CreateRequest, says string) {
	t.Helper()
	before := l.files(t)
	for range 2 {
		_, err := l.Create(t.Context(), req)
		if !errors.Is(err, volume.ErrNotAdopted) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s in %q: %v, want ErrNotAdopted saying %q", req.Name, req.Params.SubDir, err, says)
		}
	}
	l.mustHave(t, before...)
}

// A claim whose name is that of another one's archive does not get its data.
func TestArchiveIsNotAdopted(t *testing.T) {
	l := newLab(t)
	for _, subDir := range []string{"db", "team/db"} {
		id := l.createAs(t, l.classed("pvc-1", subDir, volume.OnDeleteArchive))
		l.put(t, subDir+"/secret")
		l.delete(t, id)
		archive := filepath.Join(filepath.Dir(subDir), "archived-db")
		l.mustRefuse(t, l.classed("pvc-2", archive, ""), "archived-*")
		if err := os.Mkdir(filepath.Join(l.dir, archive, "below"), 0o777); err != nil {
			t.Fatal(err)
		}
		l.mustRefuse(t, l.classed("pvc-2", archive+"/below", ""), "archived-*")
	}
	// Nor does one that has the directory around it.
	l.mustRefuse(t, l.request("team"), "team/archived-db, the archive of a deleted volume")
	// Nested as csi-driver-nfs leaves it, and with a file beside.
	l.put(t, "old/readme")
	l.put(t, "old/archived-x/secret")
	l.put(t, "deep/a/b/archived-x/secret")
	l.mustRefuse(t, l.request("old"), "old/archived-x")
	l.mustRefuse(t, l.request("deep"), "deep/a/b/archived-x")
	l.mustRefuse(t, l.classed("pvc-2", "deep/a", ""), "deep/a/b/archived-x")
}

// What a volume's own files are called is no archive, nor is a name that is free.
func TestAdoptedBesideArchives(t *testing.T) {
	l := newLab(t)
	l.put(t, "data/a")
	l.put(t, "data/files/archived-2023/a") // a directory with files leads nowhere
	l.put(t, "notes/archived-2023")        // a file
	l.put(t, "notes/x/y/archived-1/a")
	for _, name := range []string{"data", "notes", "archived-new"} {
		l.delete(t, l.create(t, name))
	}
	l.mustHave(t)
}

// A snapshot of csi-driver-nfs is no volume's directory.
func TestSnapshotOfCSIDriverNFSIsNotAdopted(t *testing.T) {
	l := newLab(t)
	const generated = "pvc-0b5e7c1a-6a3c-4f6e-9a43-b1b2f0d1c9aa"
	for name, file := range map[string]string{"s1": "v1.tar.gz", "s2": "v1.tar", "s3": generated + ".tar.gz"} {
		l.put(t, name+"/"+file)
		l.mustRefuse(t, l.request(name), "holds "+file+", a snapshot of csi-driver-nfs")
	}
	l.put(t, "s3/readme")
	l.mustRefuse(t, l.request("s3"), "holds "+generated+".tar.gz")
	l.put(t, "backups/monday.tar.gz")
	l.put(t, "backups/tuesday.tar.gz")
	l.delete(t, l.create(t, "backups"))
	l.put(t, "own/dir.tar.gz/file")
	l.delete(t, l.create(t, "own"))
}

// With adopt: "false" a volume gets a new directory or none, and is itself again
// when it is asked for again.
func TestAdoptFalse(t *testing.T) {
	l := newLab(t)
	req := l.request("pvc-1")
	req.Params.NoAdopt = true
	l.put(t, "pvc-1/there")
	l.mustRefuse(t, req, `adopt: "false"`)
	if err := os.RemoveAll(filepath.Join(l.dir, "pvc-1")); err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ { // also when killed at any step
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		_, err := l.Create(ctx, req)
		if !killed() && err != nil {
			t.Fatal(err)
		}
		if !killed() {
			break
		}
		l.Store = l.start(t)
		l.delete(t, l.createAs(t, req))
		l.Store = l.start(t)
	}
	l.mustHave(t, live("pvc-1")...)
}

// What comes to be in the volume's place at the last moment is not adopted by
// making it.
func TestComesWhileItIsCreated(t *testing.T) {
	for _, subDir := range []string{"archived-db", "team"} {
		l := newLab(t)
		l.held("create directory", func(context.Context) { l.put(t, "team/archived-db/secret"); l.put(t, "archived-db/secret") })
		if _, err := l.Create(t.Context(), l.request(subDir)); !errors.Is(err, volume.ErrNotAdopted) {
			t.Errorf("%s: %v, want ErrNotAdopted", subDir, err)
		}
		l.mustHave(t, "archived-db", "archived-db/secret", "team", "team/archived-db", "team/archived-db/secret")
	}
}

// What is made by another controller for the same request is no stranger's.
func TestMadeByAnotherController(t *testing.T) {
	l := newLab(t)
	req := l.request("archived-db")
	req.Params.NoAdopt = true
	other := l.start(t)
	l.held("create directory", func(ctx context.Context) {
		if _, err := other.Create(ctx, req); err != nil {
			t.Error(err)
		}
	})
	l.createAs(t, req)
	l.mustHave(t, live("archived-db")...)
}
