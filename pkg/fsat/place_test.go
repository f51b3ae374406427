package fsat

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func export(t *testing.T) (dir string, root *os.Root) {
	t.Helper()
	dir = t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return dir, root
}

func mkdir(t *testing.T, dir string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
}

func TestPlaceFollowsNoSymlink(t *testing.T) {
	dir, root := export(t)
	mkdir(t, filepath.Join(dir, "kept/below"), 0o750)
	if err := os.Symlink("kept", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPlace(root, "link/below"); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("open through a symlink: %v", err)
	}
	if _, err := MakePlace(root, "link/new/below"); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("make through a symlink: %v", err)
	}
	p, err := OpenPlace(root, "link")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Enter(); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("enter a symlink: %v", err)
	}
	if err := p.Chmod(0o700); err == nil {
		t.Error("chmod followed a symlink")
	}
	if err := p.Rmdir(); err == nil {
		t.Error("rmdir removed a symlink")
	}
	if info, err := os.Stat(filepath.Join(dir, "kept")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the target has changed: %v, %v", info, err)
	}
}

func TestPlaceOfMissingParents(t *testing.T) {
	dir, root := export(t)
	if _, err := OpenPlace(root, "a/b/c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	if _, err := LstatBelow(root, "a/b/c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lstat: %v", err)
	}
	p, err := MakePlace(root, "a/b/c")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Name != "c" {
		t.Errorf("the place is called %q", p.Name)
	}
	if info, err := os.Stat(filepath.Join(dir, "a/b")); err != nil || !info.IsDir() {
		t.Errorf("parents: %v, %v", info, err)
	}
	for _, outside := range []string{".", "..", "/a", "a/../b"} {
		if _, err := MakePlace(root, outside); err == nil {
			t.Errorf("%q has a place", outside)
		}
	}
}

func TestPlaceRename(t *testing.T) {
	dir, root := export(t)
	for name, mode := range map[string]fs.FileMode{"open": 0o755, "locked": 0o550} {
		mkdir(t, filepath.Join(dir, name), mode)
		from, err := OpenPlace(root, name)
		if err != nil {
			t.Fatal(err)
		}
		to, err := MakePlace(root, "to/"+name)
		if err != nil {
			t.Fatal(err)
		}
		if err := from.Rename(to); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		to.Close()
		if info, err := os.Stat(filepath.Join(dir, "to", name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has become %v, %v", name, info, err)
		}
		if err := from.Rename(to); err == nil {
			t.Errorf("%s was renamed twice", name)
		}
	}
}

func TestPrune(t *testing.T) {
	dir, root := export(t)
	mkdir(t, filepath.Join(dir, "a/b/c"), 0o755)
	mkdir(t, filepath.Join(dir, "a/other"), 0o755)
	if err := Prune(root, "a/b/c/volume"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a/b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a/b is not pruned: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a/other")); err != nil {
		t.Error(err)
	}
	if err := Prune(root, "gone/before/volume"); err != nil {
		t.Errorf("pruned twice: %v", err)
	}
}
