package tree

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// memory is a directory on a tmpfs, which lists a name again that was removed and
// created again.
func memory(t *testing.T, size string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("cannot mount a tmpfs: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r, err := os.OpenRoot(mkdir(t, filepath.Join(dir, "tree")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// quick is root in memory if possible.
func quick(t *testing.T, content testDir) (*os.Root, string) {
	t.Helper()
	if os.Getuid() != 0 {
		return root(t, content)
	}
	r := memory(t, "64m")
	content.make(t, r.Name())
	return r, r.Name()
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
