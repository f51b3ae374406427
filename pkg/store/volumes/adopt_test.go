package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The search is bounded, however wide or deep a tenant makes the directory.
func TestFindForeignIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 * maxDirs {
		if err := os.MkdirAll(filepath.Join(dir, "wide", fmt.Sprint(i), "below"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &search{names: maxNames}
	err := inDirectory(mustRoot(t, dir), "wide", func(fd int) error {
		s.top = fd
		found, err := s.below(t.Context(), "wide")
		if found != "" {
			t.Errorf("found %s", found)
		}
		return err
	})
	if read := maxNames - s.names; err != nil || read > 3*maxDirs {
		t.Errorf("read %d names, %v", read, err)
	}
}

func mustRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}
