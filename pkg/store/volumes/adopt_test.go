package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A directory as wide or as deep as a tenant may have made it keeps nobody waiting.
func TestLookForOthersIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 * maxLeads {
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
	if read := maxNames - s.names; err != nil || read > 3*maxLeads {
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
