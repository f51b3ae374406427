package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// The directory that is to be adopted is deleted before there is a record to say
// whose it is.
func TestAdoptedDirectoryIsDeletedMeanwhile(t *testing.T) {
	l := newLab(t)
	l.put(t, "team/data/file")
	other := l.start(t)
	l.held("write record", func(ctx context.Context) {
		if err := other.Delete(ctx, l.id("team/data"), nil); err != nil {
			t.Error(err)
		}
	})
	req := l.classed("pvc-1", "team/data", volume.OnDeleteDelete)
	if v, err := l.Create(t.Context(), req); !errors.Is(err, volume.ErrInProgress) {
		t.Errorf("made %+v, %v, want ErrInProgress: it has no directory", v, err)
	}
	l.mustHave(t)
	l.createAs(t, req)
	l.mustHave(t, append(live("team/data"), "team", ".nfs-csi/volumes/team", ".nfs-csi/names/pvc-1")...)
}

// A create that completes what a killed one has begun, while another controller
// deletes the volume.
func TestCompletedVolumeIsDeletedMeanwhile(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	if err := os.Remove(filepath.Join(l.dir, "pvc-1")); err != nil { // as if it had not been made yet
		t.Fatal(err)
	}
	other := l.start(t)
	l.held("answer", func(ctx context.Context) {
		if err := other.Delete(ctx, id, nil); err != nil {
			t.Error(err)
		}
	})
	if v, err := l.Create(t.Context(), l.request("pvc-1")); !errors.Is(err, volume.ErrInProgress) {
		t.Errorf("made %+v, %v, want ErrInProgress: it has no directory", v, err)
	}
	l.mustHave(t)
	l.create(t, "pvc-1")
	l.mustHave(t, live("pvc-1")...)
}

// A delete that was held up has taken a later volume's directory and is about to put
// it back; a snapshot of csi-driver-nfs that would be in that directory is no reason
// to finish what the delete has begun.
func TestDeletedSnapshotSparesATakenDirectory(t *testing.T) {
	l := newLab(t)
	first := l.createAs(t, l.classed("pvc-1", "data", volume.OnDeleteDelete))
	other := l.start(t)
	l.held("quarantine directory", func(ctx context.Context) {
		if err := other.Delete(ctx, first, nil); err != nil {
			t.Error(err)
		}
		if _, err := other.Create(ctx, l.classed("pvc-2", "data", volume.OnDeleteDelete)); err != nil {
			t.Error(err)
		}
		l.put(t, "data/precious")
		l.held("check owner of quarantined directory", func(ctx context.Context) {
			err := other.DeleteSnapshot(ctx, volume.SnapshotID{Export: l.export, Name: "data", Source: "pvc-0"}, nil)
			if err != nil {
				t.Error(err)
			}
		})
	})
	l.delete(t, first)
	l.mustHave(t, append(live("data"), "data/precious", ".nfs-csi/names/pvc-2")...)
}

// The place that an archive is being moved to is no volume, whatever it is called.
func TestReservedArchiveIsNoVolume(t *testing.T) {
	l := newLab(t)
	id := l.createAs(t, l.classed("pvc-1", "data", volume.OnDeleteArchive))
	l.put(t, "data/file")
	reserved := volume.ID{Export: l.export, SubDir: "archived-data", Name: "pvc-1"}
	other := l.start(t)
	l.held("release archive", func(ctx context.Context) {
		if _, err := other.Get(ctx, reserved, nil); !errors.Is(err, volume.ErrNotFound) {
			t.Errorf("get: %v, want ErrNotFound", err)
		}
		if page, err := other.List(ctx, 0, ""); err != nil || len(page.Volumes) != 1 || page.Volumes[0].ID.SubDir != "data" {
			t.Errorf("listed %+v, %v, want the volume only", page.Volumes, err)
		}
		if err := other.Delete(ctx, reserved, nil); err != nil {
			t.Errorf("delete: %v", err)
		}
	})
	l.delete(t, id)
	l.mustHave(t, "archived-data", "archived-data/file")
}
