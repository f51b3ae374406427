package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func (l *lab) classedFrom(name, subDir string, policy volume.OnDelete, src Source) CreateRequest {
	req := l.classed(name, subDir, policy)
	req.Source = &src
	return req
}

// nested is what a volume of that name and directory has beside its directories.
func nested(name, subDir string) []string {
	list := []string{".nfs-csi/names/" + name, recordOf(subDir)}
	for dir := subDir; dir != "."; dir = filepath.Dir(dir) {
		list = append(list, dir, ".nfs-csi/volumes/"+dir)
	}
	return list
}

// A copy is a volume like others: of a nested one, to a nested one, with the
// owner and mode its class asks for, whatever step it is killed at.
func TestCopiesByTheirClass(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give directories away")
	}
	for n := 1; ; n++ {
		l := newLab(t)
		l.cfg.Mode = 0o751 // of new directories, which this is none of
		id := l.createAs(t, l.classed("pvc-1", "team/data", ""))
		l.put(t, "team/data/file")
		if err := os.Chmod(filepath.Join(l.dir, "team/data"), 0o2775|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
		s := l.snapshot(t, "s", id)
		req := l.classedFrom("pvc-2", "${.PVC.namespace}/copy", volume.OnDeleteArchive, Source{Snapshot: &s.ID})
		req.Params.Metadata = map[string]string{volume.KeyPVCNamespace: "other"}
		req.Params.UID, req.Params.GID = ids(1000, 2000)
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		_, err := l.Create(ctx, req)
		hit := killed()
		if !hit && (err != nil || n < 6) {
			t.Fatalf("no step %d, and %v", n, err)
		}
		l.Store = l.start(t)
		v, err := l.Create(t.Context(), req)
		if err != nil || v.ID.String() != "nfs.test#export#other/copy#pvc-2#archive" {
			t.Fatalf("killed at step %d: %+v, %v", n, v, err)
		}
		if mode, uid, gid := l.stat(t, "other/copy"); mode != 0o2775 || uid != 1000 || gid != 2000 {
			t.Errorf("killed at step %d: mode %s of %d:%d", n, mode, uid, gid)
		}
		all := slices.Concat(nested("pvc-1", "team/data"), []string{"team/data/file"}, snap("s", "file"))
		l.mustHave(t, slices.Concat(all, nested("pvc-2", "other/copy"), []string{"other/copy/file"})...)
		l.mustHaveNoTemp(t)
		if page, err := l.List(t.Context(), 0, ""); err != nil || len(page.Volumes) != 2 {
			t.Errorf("listed %+v, %v", page, err)
		}
		if sick, err := l.ListHealth(t.Context(), 0, ""); err != nil || len(sick.Volumes) != 0 {
			t.Errorf("unhealthy are %+v, %v", sick, err)
		}
		l.delete(t, v.ID)
		l.mustHave(t, append(all, "other", "other/archived-copy", "other/archived-copy/file")...)
		if !hit {
			return
		}
	}
}

func TestModeOfACopy(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	for name, tt := range map[string]struct{ params, mutable, want volume.Mode }{
		"as-the-source": {0, 0, 0o777}, "class": {0o2750, 0, 0o2750}, "attributes-class": {0o750, 0o700, 0o700},
	} {
		req := l.from(name, Source{Volume: &id})
		req.Params.Mode, req.Mutable.Mode = tt.params, tt.mutable
		l.createAs(t, req)
		if mode, _, _ := l.stat(t, name); mode != tt.want {
			t.Errorf("%s: mode %s, want %s", name, mode, tt.want)
		}
	}
	clone := l.id("class")
	if err := l.Modify(t.Context(), clone, volume.Mutable{OnDelete: volume.OnDeleteRetain, Mode: 0o711}, nil); err != nil {
		t.Error(err)
	}
	if mode, _, _ := l.stat(t, "class"); mode != 0o711 {
		t.Errorf("modified to %s", mode)
	}
	l.delete(t, clone)
	if _, err := os.Stat(filepath.Join(l.dir, "class")); err != nil {
		t.Errorf("retained: %v", err)
	}
}

// What is still being copied is no volume: it is not listed, not sick and no
// source, and its directory and its name are taken.
func TestHalfMadeIsNoVolume(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.put(t, "pvc-1/file")
	blocked, release := l.blockAt("move copy into place")
	req := l.classedFrom("pvc-2", "team/copy", "", Source{Volume: &id})
	made := make(chan error, 1)
	go func() {
		_, err := l.Create(t.Context(), req)
		made <- err
	}()
	<-blocked
	half := volume.ID{Export: l.export, SubDir: "team/copy", Name: "pvc-2"}
	if page, err := l.List(t.Context(), 1, ""); err != nil || len(page.Volumes) != 1 || page.Volumes[0].ID != id || page.Next != "" {
		t.Errorf("listed %+v, %v", page, err)
	}
	if page, err := l.ListHealth(t.Context(), 0, ""); err != nil || len(page.Volumes) != 0 {
		t.Errorf("unhealthy are %+v, %v", page, err)
	}
	if found, err := l.Health(t.Context(), half, nil); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("health %v, %v, want ErrNotFound", found, err)
	}
	if _, err := l.CreateSnapshot(t.Context(), l.snapshotReq("s", half)); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("snapshot: %v, want ErrNotFound", err)
	}
	// Of the same source, so that only its name tells that it is another volume.
	other := req
	other.Name = "pvc-3"
	if _, err := l.Create(t.Context(), other); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("another volume with its directory: %v, want ErrOwned", err)
	}
	if _, err := l.Create(t.Context(), l.classedFrom("pvc-2", "elsewhere", "", Source{Volume: &id})); !errors.Is(err, volume.ErrIncompatible) {
		t.Errorf("elsewhere: %v, want ErrIncompatible", err)
	}
	differs := req
	differs.Params.OnDelete = volume.OnDeleteRetain
	if _, err := l.Create(t.Context(), differs); !errors.Is(err, volume.ErrIncompatible) {
		t.Errorf("with other parameters: %v, want ErrIncompatible", err)
	}
	release()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	if got, err := l.Get(t.Context(), half, nil); err != nil || got.ID != half {
		t.Errorf("got %+v, %v", got, err)
	}
	// Only now is it lost when it is gone.
	if err := os.RemoveAll(filepath.Join(l.dir, "team")); err != nil {
		t.Fatal(err)
	}
	if found, err := l.Health(t.Context(), half, nil); err != nil || len(found) != 1 || found[0].Severity != inventory.DataLoss {
		t.Errorf("health %v, %v, want the loss", found, err)
	}
}

// A copy that cannot get its owner, its place or its name leaves nothing, and
// not an empty parent either.
func TestFailedCopyLeavesNothing(t *testing.T) {
	refused := &os.PathError{Op: "x", Path: "y", Err: os.ErrPermission}
	for _, at := range []string{"begin copy", "copy", "move copy into place"} {
		l := newLab(t)
		id := l.create(t, "pvc-1")
		l.step = func(ctx context.Context, name string) error {
			if name == at {
				return refused
			}
			return ctx.Err()
		}
		if _, err := l.Create(t.Context(), l.classedFrom("pvc-2", "team/copy", "", Source{Volume: &id})); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v", at, err)
		}
		l.mustHave(t, live("pvc-1")...)
		l.mustHaveNoTemp(t)
	}
}

// Parents of a copy's place, its source and an archive may have been replaced by
// symlinks; none is followed.
func TestCopiesFollowNoSymlinks(t *testing.T) {
	l := newLab(t)
	id := l.createAs(t, l.classed("pvc-1", "team/data", ""))
	l.put(t, "victim/data/file")
	l.put(t, "victim/vol.tar")
	outside := t.TempDir()
	if err := errors.Join(
		os.Symlink(outside, filepath.Join(l.dir, "out")), os.Symlink("victim", filepath.Join(l.dir, "in")),
	); err != nil {
		t.Fatal(err)
	}
	for _, subDir := range []string{"out/copy", "in/copy", "in/x/y"} {
		if v, err := l.Create(t.Context(), l.classedFrom("pvc-2", subDir, "", Source{Volume: &id})); !errors.Is(err, volume.ErrOwned) {
			t.Errorf("copied to %s: %+v, %v, want ErrOwned", subDir, v, err)
		}
	}
	planted := l.id("in/data")
	if v, err := l.Create(t.Context(), l.from("pvc-2", Source{Volume: &planted})); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("copied from in/data: %+v, %v, want ErrNotFound", v, err)
	}
	archive := volume.SnapshotID{Export: l.export, Name: "in", Source: "vol"}
	if v, err := l.Create(t.Context(), l.from("pvc-2", Source{Snapshot: &archive})); !errors.Is(err, volume.ErrSnapshotNotFound) {
		t.Errorf("restored from in/vol.tar: %+v, %v, want ErrSnapshotNotFound", v, err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside: %v, %v", left, err)
	}
	l.mustHave(t, append(nested("pvc-1", "team/data"), "in", "out", "victim", "victim/data", "victim/data/file", "victim/vol.tar")...)
	l.mustHaveNoTemp(t)
}

// A volume without a record, of a predecessor, is not written into by its copy.
func TestNoCopyIntoItsSource(t *testing.T) {
	l := newLab(t)
	l.put(t, "old/file")
	id := l.id("old")
	if v, err := l.Create(t.Context(), l.classedFrom("pvc-1", "old/copy", "", Source{Volume: &id})); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("copied to %+v, %v, want ErrOwned", v, err)
	}
	l.mustHave(t, "old", "old/file")
}

// Deletes of neighbours prune the parent that a copy is about to be put into.
func TestPruneAgainstCopy(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.put(t, "pvc-1/file")
	other := l.start(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			v, err := other.Create(t.Context(), l.classed("busy", "team/a/x", ""))
			if err == nil {
				err = other.Delete(t.Context(), v.ID, nil)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	end := time.Now().Add(time.Second)
	for time.Now().Before(end) {
		l.delete(t, l.createAs(t, l.classedFrom("pvc-2", "team/a/y", "", Source{Volume: &id})))
	}
	close(stop)
	<-done
	other.reclaim.Wait()
	l.mustHave(t, append(live("pvc-1"), "pvc-1/file")...)
}

// Records of drivers that know nothing of copies are those of whole volumes.
func TestPendingIsSaidOnly(t *testing.T) {
	l := newLab(t)
	if is, err := volumes.Pending(nil, catalog.Record{SubDir: "gone"}); is || err != nil {
		t.Errorf("pending %v, %v", is, err)
	}
	id := l.create(t, "pvc-1")
	if err := os.Remove(filepath.Join(l.dir, "pvc-1")); err != nil {
		t.Fatal(err)
	}
	if found, err := l.Health(t.Context(), id, nil); err != nil || len(found) != 1 || found[0].Severity != inventory.DataLoss {
		t.Errorf("health %v, %v, want the loss", found, err)
	}
}
