package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func recordOf(subDir string) string { return ".nfs-csi/volumes/" + subDir + "/.record.json" }

func (l *lab) stat(t *testing.T, path string) (volume.Mode, uint32, uint32) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(l.dir, path), &st); err != nil {
		t.Fatal(err)
	}
	return volume.Mode(st.Mode & 0o7777), st.Uid, st.Gid
}

func TestNested(t *testing.T) {
	l := newLab(t)
	req := l.classed("pvc-1", "${.PVC.namespace}/${.PVC.name}", "")
	req.Params.Metadata = map[string]string{volume.KeyPVCNamespace: "team", volume.KeyPVCName: "data"}
	one := l.createAs(t, req)
	if want := "nfs.test#export#team/data#pvc-1#delete"; one.String() != want {
		t.Errorf("ID %s, want %s", one, want)
	}
	if again := l.createAs(t, req); again != one {
		t.Errorf("again: %s", again)
	}
	two := l.createAs(t, l.classed("pvc-2", "team/other", ""))
	if mode, _, _ := l.stat(t, "team"); mode != 0o755 {
		t.Errorf("the parent has mode %s", mode)
	}
	l.delete(t, one)
	if _, err := os.Stat(filepath.Join(l.dir, "team/other")); err != nil {
		t.Errorf("the sibling: %v", err)
	}
	l.delete(t, two)
	l.mustHave(t)
}

func TestSubDirWithoutValue(t *testing.T) {
	l := newLab(t)
	if _, err := l.Create(t.Context(), l.classed("pvc-1", "${.PVC.name}", "")); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	l.mustHave(t)
}

func TestOneDirectoryOneVolume(t *testing.T) {
	l := newLab(t)
	first := l.createAs(t, l.classed("pvc-1", "team/data", volume.OnDeleteRetain))
	l.put(t, "team/data/file")
	for _, subDir := range []string{"team/data", "team", "team/data/below"} {
		if _, err := l.Create(t.Context(), l.classed("pvc-2", subDir, "")); !errors.Is(err, volume.ErrOwned) {
			t.Errorf("%s: %v, want ErrOwned", subDir, err)
		}
	}
	l.delete(t, first)
	second := l.createAs(t, l.classed("pvc-2", "team/data", ""))
	l.delete(t, first) // repeated late: the directory is another's now
	l.mustHave(t, ".nfs-csi/names/pvc-2", ".nfs-csi/volumes/team", ".nfs-csi/volumes/team/data", recordOf("team/data"),
		"team", "team/data", "team/data/file")
	l.delete(t, second)
	l.mustHave(t)
}

// The same name is the same volume, wherever its directory is asked to be.
func TestOneNameOneDirectory(t *testing.T) {
	l := newLab(t)
	l.create(t, "pvc-1")
	classed := l.createAs(t, l.classed("pvc-2", "a/b", ""))
	for _, req := range []CreateRequest{l.classed("pvc-1", "x", ""), l.request("pvc-2"), l.classed("pvc-2", "c", ""), l.classed("pvc-2", "a/b", volume.OnDeleteRetain)} {
		if _, err := l.Create(t.Context(), req); !errors.Is(err, volume.ErrIncompatible) {
			t.Errorf("%s in %q: %v, want ErrIncompatible", req.Name, req.Params.SubDir, err)
		}
	}
	l.delete(t, classed)
	l.delete(t, l.createAs(t, l.classed("pvc-2", "c", "")))
	l.delete(t, l.id("pvc-1"))
	l.mustHave(t)
}

func ids(uid, gid uint32) (u, g *uint32) { return &uid, &gid }

func TestOwnerAndMode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give directories away")
	}
	l := newLab(t)
	for _, mode := range []volume.Mode{0, 0o700, 0o2770, 0o1777, 0o500} {
		req := l.request("pvc-" + mode.String())
		req.Params.UID, req.Params.GID = ids(1000, 2000)
		req.Params.Mode = mode
		l.createAs(t, req)
		want := mode
		if mode == 0 {
			want = 0o777
		}
		if got, uid, gid := l.stat(t, req.Name); got != want || uid != 1000 || gid != 2000 {
			t.Errorf("mode %s of %d:%d, want %s", got, uid, gid, want)
		}
		if err := os.Chmod(filepath.Join(l.dir, req.Name), 0o711); err != nil {
			t.Fatal(err)
		}
		l.createAs(t, req)
		if got, _, _ := l.stat(t, req.Name); got != 0o711 {
			t.Errorf("a repeated call changed the mode of a volume in use to %s", got)
		}
	}
	l.cfg.Mode = 0o750
	l.create(t, "default")
	if got, uid, _ := l.stat(t, "default"); got != 0o750 || uid != 0 {
		t.Errorf("default mode %s of %d", got, uid)
	}
}

func TestAdoptedIsUntouched(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give directories away")
	}
	for _, mode := range []os.FileMode{0, 0o640} {
		l := newLab(t)
		l.put(t, "team/data/file")
		dir := filepath.Join(l.dir, "team/data")
		if err := errors.Join(os.Chown(dir, 7, 8), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		req := l.classed("pvc-1", "team/data", "")
		req.Params.UID, req.Params.GID = ids(1000, 2000)
		req.Params.Mode = 0o700
		for n := 1; ; n++ { // also when killed at any step
			ctx, killed := l.killAt(t.Context(), l.Store, n)
			_, err := l.Create(ctx, req)
			if !killed() {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			l.Store = l.start(t)
		}
		l.Store = l.start(t)
		l.createAs(t, req)
		if got, uid, gid := l.stat(t, "team/data"); got != volume.Mode(mode) || uid != 7 || gid != 8 {
			t.Errorf("it became mode %s of %d:%d", got, uid, gid)
		}
	}
}

func TestKilledCreateWithOwnerIsCompleted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give directories away")
	}
	for n := 1; ; n++ {
		l := newLab(t)
		req := l.classed("pvc-1", "team/data", "")
		req.Params.UID, req.Params.GID = ids(1000, 2000)
		req.Params.Mode = 0o2770
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		_, err := l.Create(ctx, req)
		if !killed() {
			if err != nil || n < 6 {
				t.Fatalf("no step %d, and %v", n, err)
			}
			return
		}
		l.Store = l.start(t)
		id := l.createAs(t, req)
		if got, uid, gid := l.stat(t, "team/data"); got != 0o2770 || uid != 1000 || gid != 2000 {
			t.Errorf("killed at step %d: mode %s of %d:%d", n, got, uid, gid)
		}
		l.mustHave(t, ".nfs-csi/names/pvc-1", ".nfs-csi/volumes/team", ".nfs-csi/volumes/team/data",
			recordOf("team/data"), "team", "team/data")
		l.delete(t, id)
		l.mustHave(t)
	}
}

// A directory that cannot be made as asked for leaves nothing.
func TestFailedCreateLeavesNothing(t *testing.T) {
	refused := &os.PathError{Op: "lchown", Path: "data", Err: syscall.EPERM}
	for _, at := range []string{"create directory", "set owner of directory", "set mode of directory", "write record"} {
		l := newLab(t)
		step := l.step
		l.step = func(ctx context.Context, name string) error {
			if name == at {
				return refused
			}
			return step(ctx, name)
		}
		req := l.classed("pvc-1", "team/data", "")
		req.Params.Mode = 0o2770
		if _, err := l.Create(t.Context(), req); !errors.Is(err, volume.ErrRefused) {
			t.Errorf("%s: %v, want ErrRefused", at, err)
		}
		l.reclaim.Wait()
		if _, err := os.Lstat(filepath.Join(l.dir, "team")); at != "write record" && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: left behind: %v", at, err)
		}
		l.step = step
		l.delete(t, l.createAs(t, req))
		l.mustHave(t)
	}
}

// A symlink on the way leads nowhere, be it to another volume or out.
func TestSymlinksOnTheWay(t *testing.T) {
	l := newLab(t)
	l.create(t, "victim")
	outside := t.TempDir()
	for name, to := range map[string]string{"in": "victim", "out": outside, "dots": "../.."} {
		if err := os.Symlink(to, filepath.Join(l.dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(l.dir, "kept"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../"+to, filepath.Join(l.dir, "kept", name)); err != nil {
			t.Fatal(err)
		}
	}
	l.put(t, "victim/sub/data")
	before := l.tree(t)
	for _, subDir := range []string{"in/sub", "in/new", "out/new", "dots/new", "kept/in/sub", "kept/out/x/y", "in", "out"} {
		if _, err := l.Create(t.Context(), l.classed("pvc-1", subDir, "")); !errors.Is(err, volume.ErrOwned) {
			t.Errorf("create %s: %v, want ErrOwned", subDir, err)
		}
		if subDir == "in" || subDir == "out" {
			continue
		}
		for _, policy := range []volume.OnDelete{volume.OnDeleteDelete, volume.OnDeleteArchive} {
			id := l.id(subDir)
			id.OnDelete = policy
			if err := l.Delete(t.Context(), id, nil); !errors.Is(err, volume.ErrOwned) {
				t.Errorf("%s %s: %v, want ErrOwned", policy, subDir, err)
			}
		}
		if err := l.Exists(t.Context(), l.id(subDir), nil); !errors.Is(err, volume.ErrOwned) {
			t.Errorf("exists %s: %v", subDir, err)
		}
	}
	if after := l.tree(t); len(after) != len(before) {
		t.Errorf("the export changed from %q to %q", before, after)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside: %v, %v", left, err)
	}
}

// Volumes come and go below one parent, which each delete tries to prune.
func TestPruneAgainstCreate(t *testing.T) {
	l := newLab(t)
	stores := []*Store{l.Store, l.start(t)}
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			for range 60 {
				req := l.classed([]string{"pvc-1", "pvc-2"}[i], []string{"team/a/x", "team/a/y"}[i], "")
				v, err := s.Create(t.Context(), req)
				if err == nil {
					err = s.Delete(t.Context(), v.ID, nil)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	stores[1].reclaim.Wait()
	l.mustHave(t)
}

// What a VolumeAttributesClass says wins over the class, from the beginning.
func TestMutableParametersWin(t *testing.T) {
	l := newLab(t)
	req := l.classed("pvc-1", "data", volume.OnDeleteDelete)
	req.Params.Mode = 0o755
	req.Mutable = volume.Mutable{OnDelete: volume.OnDeleteRetain, Mode: 0o711}
	id := l.createAs(t, req)
	if rec := l.record(t, "data"); id.OnDelete != volume.OnDeleteRetain || rec.OnDelete != volume.OnDeleteRetain || rec.Mode != 0o711 {
		t.Errorf("made %s, the record says %s and mode %s", id, rec.OnDelete, rec.Mode)
	}
	if mode, _, _ := l.stat(t, "data"); mode != 0o711 {
		t.Errorf("mode %s", mode)
	}
}
