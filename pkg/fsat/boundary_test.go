package fsat

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBoundary(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o644),
		os.Symlink("/proc", filepath.Join(dir, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	top, err := filepath.Rel("/", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ root, subDir, want string }{
		{dir, "a/b/c", ""}, {dir, "a/missing/c", ""}, {dir, "file/x", ""}, {dir, "link/self", ""}, {dir, "link", ""},
		{"/", "proc", "proc"}, {"/", "proc/sys/missing", "proc"}, {"/proc", "sys/kernel", ""}, {"/", filepath.Join("proc/1/root", top), "proc"},
	} {
		root, err := os.OpenRoot(tt.root)
		if err != nil {
			t.Fatal(err)
		}
		at, err := Boundary(root, tt.subDir)
		if err != nil || at != tt.want {
			t.Errorf("%s below %s: %q, %v, want %q", tt.subDir, tt.root, at, err, tt.want)
		}
		for _, escape := range []string{"", "..", "../a", "/proc"} {
			if at, err := Boundary(root, escape); !errors.Is(err, unix.EXDEV) {
				t.Errorf("%q: %q, %v, want EXDEV", escape, at, err)
			}
		}
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	}
}
