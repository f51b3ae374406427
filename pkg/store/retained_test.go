package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// retained is where the note of a retained directory is.
func retained(t *testing.T, subDir string) string {
	t.Helper()
	name, err := volume.DirName(subDir)
	if err != nil {
		t.Fatal(err)
	}
	return ".nfs-csi/retained/" + name
}

// Whoever had the directory, and however often it was retained, a DeleteVolume that
// comes late takes nothing with it.
func TestLateDeleteSparesWhatWasRetainedAgain(t *testing.T) {
	for _, subDir := range []string{"data", "team/data"} {
		l := newLab(t)
		first := l.createAs(t, l.classed("pvc-1", subDir, volume.OnDeleteDelete))
		l.put(t, subDir+"/file")
		if err := l.Modify(t.Context(), first, volume.Mutable{OnDelete: volume.OnDeleteRetain}, nil); err != nil {
			t.Fatal(err)
		}
		l.delete(t, first)
		l.mustHaveAmong(t, []string{retained(t, subDir)})
		second := l.createAs(t, l.classed("pvc-2", subDir, volume.OnDeleteRetain))
		if _, err := os.Lstat(filepath.Join(l.dir, retained(t, subDir))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the note of an adopted directory: %v", subDir, err)
		}
		l.delete(t, second)
		for _, id := range []volume.ID{first, second} {
			l.delete(t, id)
			if got := l.content(t, subDir+"/file"); got != subDir+"/file" {
				t.Fatalf("%s: what was retained became %q", subDir, got)
			}
		}
		third := l.createAs(t, l.classed("pvc-3", subDir, volume.OnDeleteDelete))
		l.delete(t, third)
		l.delete(t, first)
		if _, err := os.Lstat(filepath.Join(l.dir, subDir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the third volume's directory: %v", subDir, err)
		}
	}
}

// Notes were once named after the volume.
func TestNoteByTheNameOfTheVolume(t *testing.T) {
	l := newLab(t)
	id := l.createAs(t, l.classed("pvc-1", "data", volume.OnDeleteRetain))
	l.put(t, "data/file")
	l.delete(t, id)
	if err := os.Rename(filepath.Join(l.dir, retained(t, "data")), filepath.Join(l.dir, retained(t, "pvc-1"))); err != nil {
		t.Fatal(err)
	}
	id.OnDelete = volume.OnDeleteDelete
	l.delete(t, id)
	l.mustHave(t, "data", "data/file", retained(t, "pvc-1"))
}

// The ID of the volume says so too: there need be no room for a note.
func TestRetainOnAFullDisk(t *testing.T) {
	l := newLab(t)
	id := l.createAs(t, l.classed("pvc-1", "pvc-1", volume.OnDeleteRetain))
	l.full("mark directory as retained", nothing)
	l.delete(t, id)
	l.mustHave(t, "pvc-1")
}

// sweep is the upkeep of retained directories at a later time.
func (l *lab) sweep(t *testing.T, at *upkeep, age time.Duration) {
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
	if err := at.sweepRetained(t.Context(), &session.Session{Root: root, Cat: cat}, func(context.Context) (time.Time, error) { return time.Now().Add(age), nil }); err != nil {
		t.Error(err)
	}
}

func (l *lab) retain(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		l.delete(t, l.createAs(t, l.classed(name, name, volume.OnDeleteRetain)))
	}
}

func TestSweepOfRetainedDirectories(t *testing.T) {
	l := newLab(t)
	l.retain(t, "pvc-1", "pvc-2")
	l.put(t, ".nfs-csi/retained/no-note")
	if err := os.Remove(filepath.Join(l.dir, "pvc-1")); err != nil {
		t.Fatal(err)
	}
	l.sweep(t, &upkeep{}, retainedTTL-time.Hour)
	l.mustHave(t, "pvc-2", retained(t, "pvc-2"), ".nfs-csi/retained/no-note")
	l.sweep(t, &upkeep{}, -time.Hour) // the clock was set back
	l.mustHave(t, "pvc-2", retained(t, "pvc-2"), ".nfs-csi/retained/no-note")
	l.sweep(t, &upkeep{}, retainedTTL+time.Hour)
	l.mustHave(t, "pvc-2", ".nfs-csi/retained/no-note")
}

func TestSweepIsBounded(t *testing.T) {
	l := newLab(t)
	const count = sweepLimit + 5
	if err := os.MkdirAll(filepath.Join(l.dir, ".nfs-csi/retained"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		name := fmt.Sprintf("gone-%04d", i)
		l.writeJSON(t, retained(t, name), map[string]any{"version": 1, "name": name, "subDir": name})
	}
	at := &upkeep{}
	for round, want := range []int{count - sweepLimit, 0} {
		l.sweep(t, at, 0)
		left, err := os.ReadDir(filepath.Join(l.dir, ".nfs-csi/retained"))
		if err != nil || len(left) != want {
			t.Errorf("after sweep %d there are %d, %v, want %d", round+1, len(left), err, want)
		}
	}
	if at.after != "" {
		t.Errorf("the next sweep begins after %q", at.after)
	}
}

// An export is looked through when it is worked on, once an hour.
func TestUpkeepComesOnceAnHour(t *testing.T) {
	l := newLab(t)
	l.retain(t, "pvc-1")
	l.mustHave(t, "pvc-1", retained(t, "pvc-1")) // once it was swept
	if err := os.Remove(filepath.Join(l.dir, "pvc-1")); err != nil {
		t.Fatal(err)
	}
	l.delete(t, l.create(t, "pvc-2"))
	l.mustHave(t, retained(t, "pvc-1"))
	l.start(t).reclaim.Resume(session.Target{Key: session.Key{Export: l.export}})
	l.mustHave(t)

	var s upkeeps
	now := time.Now()
	first := s.begin(l.export, now)
	other := s.begin(volume.Export{Server: "other.test", Share: "/"}, now)
	if first == nil || other == nil || first == other || s.begin(l.export, now.Add(upkeepInterval-1)) != nil || s.begin(l.export, now.Add(upkeepInterval)) != first {
		t.Error("upkeep does not come once an hour on each export")
	}
}
