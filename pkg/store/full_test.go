package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// full makes a step fail as on a full disk, after doing something else.
func (l *lab) full(at string, do func(context.Context)) { l.failing(at, unix.ENOSPC, do) }

func nothing(context.Context) {}

func TestDeleteWithoutRoomForTheTrash(t *testing.T) {
	for _, at := range []string{"quarantine directory", "move directory to trash"} {
		l := newLab(t)
		id := l.createAs(t, l.classed("pvc-1", "team/data", volume.OnDeleteDelete))
		l.put(t, "team/data/a/b")
		l.full(at, nothing)
		err := l.Delete(t.Context(), id, nil)
		if taken := at == "move directory to trash"; (err != nil) != taken {
			t.Errorf("%s: %v", at, err)
		}
		l.delete(t, id)
		l.mustHave(t)
	}
}

func TestDeleteOfAPredecessorsVolumeWithoutRoom(t *testing.T) {
	l := newLab(t)
	l.put(t, "old/a/b")
	l.put(t, "other/file")
	l.full("quarantine directory", nothing)
	l.delete(t, l.id("old"))
	l.mustHave(t, "other", "other/file")
}

// What is deleted in its place is deleted for good: only what is the volume's.
func TestDeleteWithoutRoomSparesOthers(t *testing.T) {
	l := newLab(t)
	archived := l.createAs(t, l.classed("pvc-0", "kept", volume.OnDeleteArchive))
	l.put(t, "kept/file")
	l.full("quarantine directory", nothing)
	if err := l.Delete(t.Context(), archived, nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("one to be archived: %v", err)
	}
	l.mustHave(t, append(live("kept"), "kept/file", ".nfs-csi/names/pvc-0")...)
	l.delete(t, archived)
	if err := os.RemoveAll(filepath.Join(l.dir, "archived-kept")); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"quarantine directory", "remove directory in place"} {
		for _, name := range []string{"pvc-1", "pvc-2"} { // of the later volume
			first := l.createAs(t, l.classed("pvc-1", "data", volume.OnDeleteDelete))
			other, later := l.start(t), volume.ID{}
			meanwhile := func(ctx context.Context) {
				if err := other.Delete(ctx, first, nil); err != nil {
					t.Error(err)
				}
				v, err := other.Create(ctx, l.classed(name, "data", volume.OnDeleteDelete))
				if err != nil {
					t.Error(err)
				}
				later = v.ID
				l.put(t, "data/precious")
			}
			if at == "quarantine directory" {
				l.full(at, meanwhile)
			} else {
				l.held(at, meanwhile)
				l.full("quarantine directory", nothing)
			}
			err := l.Delete(t.Context(), first, nil)
			if err != nil && !errors.Is(err, unix.ENOSPC) {
				t.Error(err)
			}
			if err := os.RemoveAll(filepath.Join(l.dir, ".nfs-csi/names")); err != nil {
				t.Error(err)
			}
			l.mustHave(t, append(live("data"), "data/precious")...)
			l.delete(t, later)
			l.mustHave(t)
		}
	}
}

// A directory without a record that has come in the place of a volume which had one is
// not that volume's.
func TestDeleteWithoutRoomSparesWhatHasNoRecord(t *testing.T) {
	l := newLab(t)
	id, other := l.create(t, "pvc-1"), l.start(t)
	l.full("quarantine directory", func(ctx context.Context) {
		if err := other.Delete(ctx, id, nil); err != nil {
			t.Error(err)
		}
		l.put(t, "pvc-1/precious")
	})
	if err := l.Delete(t.Context(), id, nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
	l.mustHave(t, "pvc-1", "pvc-1/precious")
}

// A volume whose record is on another file system than its directory.
func TestDeleteWithTheTrashOnAnotherFileSystem(t *testing.T) {
	l := newLab(t)
	id := l.createAs(t, l.classed("pvc-1", "team/data", volume.OnDeleteDelete))
	archived := l.createAs(t, l.classed("pvc-2", "team/kept", volume.OnDeleteArchive))
	l.put(t, "team/data/a/b")
	l.put(t, "team/kept/file")
	l.failing("quarantine directory", unix.EXDEV, nothing)
	l.delete(t, id)
	l.failing("quarantine directory", unix.EXDEV, nothing)
	if err := l.Delete(t.Context(), archived, nil); !errors.Is(err, unix.EXDEV) {
		t.Errorf("one to be archived: %v", err)
	}
	l.mustHave(t, append(live("team/kept"), "team", "team/kept/file", ".nfs-csi/volumes/team", ".nfs-csi/names/pvc-2")...)
}

func TestKilledDeleteOfAPredecessorsVolumeLeavesNoParents(t *testing.T) {
	for n := 1; ; n++ {
		l := newLab(t)
		l.put(t, "team/old/a/b")
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		err := l.Delete(ctx, l.id("team/old"), nil)
		if !killed() {
			if err != nil || n < 3 {
				t.Fatalf("no step %d, and %v", n, err)
			}
			return
		}
		next := l.start(t)
		if err := next.Delete(t.Context(), l.id("team/old"), nil); err != nil {
			t.Errorf("killed at step %d: %v", n, err)
		}
		l.mustHave(t)
	}
}

// The directory above a volume that is gone may be that of a live volume.
func TestDeleteOfWhatIsGoneSparesTheVolumeAbove(t *testing.T) {
	l := newLab(t)
	l.create(t, "team")
	l.delete(t, l.id("team/old"))
	l.mustHave(t, live("team")...)
}
