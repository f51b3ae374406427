package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestDelete(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.create(t, "pvc-2")
	l.put(t, "pvc-1/a/b/c")
	if err := os.Symlink("../pvc-2", filepath.Join(l.dir, "pvc-1/link")); err != nil {
		t.Fatal(err)
	}
	l.put(t, "pvc-2/keep")
	for range 2 {
		if err := l.Delete(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
		l.mustHave(t, append(live("pvc-2"), "pvc-2/keep")...)
	}
	if err := l.Exists(t.Context(), id, nil); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("exists: %v", err)
	}
	if err := l.Exists(t.Context(), l.id("pvc-2"), nil); err != nil {
		t.Errorf("exists: %v", err)
	}
}

func TestDeleteLegacy(t *testing.T) {
	l := newLab(t)
	l.put(t, "legacy/data")
	l.put(t, "ns/claim/data")
	l.put(t, "ns/sibling/data")
	for _, text := range []string{"nfs.test#export#legacy", "nfs.test/export/legacy", "nfs.test#export#ns/claim#pvc-1#"} {
		id, err := volume.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Delete(t.Context(), id, nil); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	l.mustHave(t, "ns", "ns/sibling", "ns/sibling/data")
	id, err := volume.ParseID("nfs.test#export#ns/sibling")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Delete(t.Context(), id, nil); err != nil {
		t.Error(err)
	}
	l.mustHave(t)
}

// A controller was killed after it removed the record, and before its directory.
func TestDeleteAfterOneKilledAtItsEnd(t *testing.T) {
	for _, policy := range []volume.OnDelete{volume.OnDeleteDelete, volume.OnDeleteRetain, volume.OnDeleteArchive} {
		l := newLab(t)
		l.createAs(t, l.classed("pvc-1", "team/one", volume.OnDeleteDelete))
		id := l.createAs(t, l.classed("pvc-2", "team/two", policy))
		kept := []string{"team/two"}
		errs := []error{
			os.Remove(filepath.Join(l.dir, ".nfs-csi/names/pvc-2")),
			os.Remove(filepath.Join(l.dir, ".nfs-csi/volumes/team/two/.record.json")),
		}
		if policy != volume.OnDeleteRetain {
			kept, errs = nil, append(errs, os.Remove(filepath.Join(l.dir, "team/two")))
		}
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if err := l.Delete(t.Context(), id, nil); err != nil {
			t.Errorf("%s: %v", policy, err)
		}
		l.mustHave(t, append(kept, "team", ".nfs-csi/volumes/team", ".nfs-csi/names/pvc-1",
			"team/one", ".nfs-csi/volumes/team/one", ".nfs-csi/volumes/team/one/.record.json")...)
	}
}

func TestDeleteRetains(t *testing.T) {
	l := newLab(t)
	l.put(t, "old/data")
	retain := l.id("old")
	retain.OnDelete = volume.OnDeleteRetain
	for range 2 {
		if err := l.Delete(t.Context(), retain, nil); err != nil {
			t.Errorf("retain: %v", err)
		}
		l.mustHave(t, "old", "old/data")
	}
}

// The policy that counts is the record's, which can be changed after the ID.
// The record that says so is gone when the call is repeated, as after its answer was
// lost, and the ID says to delete.
func TestDeleteRetainsWhatTheRecordSaid(t *testing.T) {
	for _, subDir := range []string{"pvc-1", "team/data"} {
		for _, legacy := range []bool{false, true} {
			l := newLab(t)
			l.put(t, subDir+"/file")
			id := l.id(subDir)
			if !legacy {
				id = l.createAs(t, l.classed("pvc-1", subDir, volume.OnDeleteDelete))
			}
			if err := l.Modify(t.Context(), id, volume.Mutable{OnDelete: volume.OnDeleteRetain}, nil); err != nil {
				t.Fatal(err)
			}
			l.full("mark directory as retained", nothing)
			if err := l.Delete(t.Context(), id, nil); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("without room for the note: %v", err)
			}
			for range 3 {
				if err := l.Delete(t.Context(), id, nil); err != nil {
					t.Error(err)
				}
				if got := l.content(t, subDir+"/file"); got != subDir+"/file" {
					t.Fatalf("%s, legacy=%v: the directory that was to be retained holds %q", subDir, legacy, got)
				}
			}
			l.never(t, "quarantine directory")
			if err := l.Delete(t.Context(), id, nil); err != nil {
				t.Error(err)
			}
			l.Store = l.start(t)
			// It belongs to nobody and can be another's.
			later := l.createAs(t, l.classed("pvc-2", subDir, volume.OnDeleteDelete))
			if err := l.Delete(t.Context(), id, nil); err != nil {
				t.Error(err)
			}
			if got := l.content(t, subDir+"/file"); got != subDir+"/file" {
				t.Errorf("it was deleted under the later one: %q", got)
			}
			l.delete(t, later)
			if _, err := os.Stat(filepath.Join(l.dir, subDir)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the later one is there: %v", err)
			}
		}
	}
}

func TestDeleteLeavesOthersAlone(t *testing.T) {
	l := newLab(t)
	l.create(t, "pvc-1")
	l.put(t, "pvc-1/sub/data")
	before := l.tree(t)

	inside := l.id("pvc-1/sub")
	later := l.id("pvc-1")
	later.Name = "an-older-volume"
	if err := l.Delete(t.Context(), inside, nil); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("within a live volume: %v, want ErrOwned", err)
	}
	if err := l.Delete(t.Context(), later, nil); err != nil {
		t.Errorf("a volume that is gone: %v", err)
	}
	if after := l.tree(t); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("the export changed from %q to %q", before, after)
	}
}

func TestDeleteAroundALiveVolume(t *testing.T) {
	l := newLab(t)
	rec, err := l.cfg.volumes().Record(l.request("x"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	rec.SubDir = "team/x"
	l.put(t, "team/x/data")
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
	if err := cat.Create(rec); err != nil {
		t.Fatal(err)
	}
	if err := l.Delete(t.Context(), l.id("team"), nil); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("delete: %v, want ErrOwned", err)
	}
	if _, err := l.Create(t.Context(), l.request("team")); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("create: %v, want ErrOwned", err)
	}
	if _, err := os.Stat(filepath.Join(l.dir, "team/x/data")); err != nil {
		t.Error(err)
	}
}

// The store does not rely on IDs having been parsed.
func TestDeleteNeverTheExport(t *testing.T) {
	l := newLab(t)
	l.put(t, "data")
	for _, subDir := range []string{"", ".", "..", "/", "../export", ".nfs-csi", "a/.."} {
		if err := l.Delete(t.Context(), l.id(subDir), nil); err == nil {
			t.Errorf("%q was deleted", subDir)
		}
	}
	for _, subDir := range []string{"", ".", "..", "/"} {
		if err := l.Exists(t.Context(), l.id(subDir), nil); !errors.Is(err, volume.ErrInvalid) {
			t.Errorf("%q exists: %v", subDir, err)
		}
	}
	l.mustHave(t, "data")
}

func TestUnreadableRecordStopsDelete(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	if err := os.WriteFile(filepath.Join(l.dir, ".nfs-csi/volumes/pvc-1/.record.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Delete(t.Context(), id, nil); err == nil {
		t.Error("deleted although nobody can say whose it is")
	}
	l.mustHave(t, live("pvc-1")...)
}

// Whatever call comes first, and without one where the export is to be listed.
func TestReclaimResumes(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *lab){
		"create": func(t *testing.T, l *lab) { l.delete(t, l.create(t, "pvc-1")) },
		"capacity": func(t *testing.T, l *lab) {
			if _, err := l.Capacity(t.Context(), l.export, nil); err != nil {
				t.Error(err)
			}
		},
		"none": func(t *testing.T, l *lab) { l.startListing(t) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.put(t, ".nfs-csi/trash/pvc-0.1700000000000000000/a/b")
			l.put(t, ".nfs-csi/trash/pvc-9.1700000000000000001/a")
			begin(t, l)
			l.mustHave(t)
		})
	}
}

func (l *lab) startListing(t *testing.T) {
	t.Helper()
	s, err := New(t.Context(), Config{Shares: l.cfg.Shares, ReclaimWorkers: 1, CopyWorkers: 1, Exports: []volume.Export{l.export}})
	if err != nil {
		t.Fatal(err)
	}
	l.all = append(l.all, s)
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
