package fsat

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenBeneath(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "a", "b", "file"), nil, 0o600))
	must(t, os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "absolute")))
	must(t, os.Symlink("a", filepath.Join(dir, "relative")))
	must(t, os.Symlink("file", filepath.Join(dir, "a", "b", "last")))
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	for name, good := range map[string]bool{
		"a/b/file": true, "a": true, "a/none": false, "absolute/b/file": false, "relative/b/file": false,
		"a/b/last": false, "../" + filepath.Base(dir): false, "a/../..": false, dir: false, "": false,
	} {
		fd, err := OpenBeneath(int(f.Fd()), name, unix.O_RDONLY)
		if (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil {
			must(t, unix.Close(fd))
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
