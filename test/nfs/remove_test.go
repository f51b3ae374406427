package nfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// mounted is a directory where an export is mounted by a client of its own, as a
// node's.
func mounted(t *testing.T, e volume.Export, list ...string) string {
	t.Helper()
	k := kernel(t)
	at := target(t, k)
	if err := k.Mount(t.Context(), nfsmount.Mount{Export: e, Target: at, Options: options(t, list...)}); err != nil {
		t.Fatal(err)
	}
	return at
}

// A directory that the client has listed is a fifo or a symlink by now.
func TestRemoveReplacedEntries(t *testing.T) {
	versions(t, func(t *testing.T, disk, version string) {
		e, dir := export(t, disk, "rw,no_root_squash", 0o777)
		in, err := os.Open(mounted(t, e, version))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		for what, replace := range map[string]func(name string) error{
			"fifo":    func(name string) error { return unix.Mkfifo(name, 0o600) },
			"symlink": func(name string) error { return os.Symlink("../../canary", name) },
		} {
			at := filepath.Join(dir, what)
			for _, sub := range []string{"../canary", "a", "b", "c"} {
				if err := os.MkdirAll(filepath.Join(at, sub, "sub"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(at, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			replaced := false
			removal := tree.Removal{Workers: 1, Before: func(context.Context, int64) (err error) {
				for _, sub := range []string{"a", "b", "c"} {
					if name := filepath.Join(at, sub); !replaced {
						err = errors.Join(err, os.RemoveAll(name), replace(name))
					}
				}
				replaced = true
				return err
			}}
			within(t, 10*time.Second, "removal", func() {
				// What the client believes for a while is found out the next time.
				for range 2 {
					_, err = removal.Remove(t.Context(), in, what)
				}
			})
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if _, err := os.Lstat(at); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: it is still there: %v", what, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "canary/sub")); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// XFS moves no directory into another quota project. One that lies too deep and cannot
// be moved for that is emptied where it is.
func TestRemoveAcrossProjects(t *testing.T) {
	e, dir := export(t, "LAB_EXPORT_XFS", "rw,no_root_squash", 0o777)
	in, err := os.Open(mounted(t, e, "vers=4.2"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	project := func(name, id string) {
		run(t, "xfs_io", "-r", "-c", "chproj "+id, "-c", "chattr +P", name)
	}
	at := filepath.Join(dir, "tree")
	inner := filepath.Join(at, strings.Repeat("d/", 40), "inner")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	project(at, "1001")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	project(inner, "1002")
	if err := os.MkdirAll(filepath.Join(inner, strings.Repeat("e/", 80)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(inner, filepath.Join(at, "moved")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("moving it to another project: %v, want EXDEV", err)
	}
	n, err := tree.Removal{Workers: 4}.Remove(t.Context(), in, "tree")
	if err != nil || n != 1+40+1+80 {
		t.Errorf("removed %d: %v", n, err)
	}
}

// What is mounted in a tree is not of the tree.
func TestRemoveLeavesMounts(t *testing.T) {
	_, dir := export(t, "LAB_EXPORT_EXT4", "rw,no_root_squash", 0o777)
	at := filepath.Join(dir, "tree/a/mount")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "-t", "tmpfs", "none", at)
	t.Cleanup(func() { run(t, "umount", at) })
	if err := os.WriteFile(filepath.Join(at, "keep"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_, err = tree.Removal{Workers: 4}.Remove(t.Context(), in, "tree")
	var left *tree.LeftError
	if !errors.As(err, &left) || !errors.Is(err, tree.ErrMountPoint) || left.Path != "tree/a/mount" {
		t.Errorf("got %v, want that there is a mount", err)
	}
	if _, err := os.Stat(filepath.Join(at, "keep")); err != nil {
		t.Error(err)
	}
}
