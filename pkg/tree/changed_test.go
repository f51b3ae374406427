package tree

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tick waits for the next tick of the file system's clock, and returns its time.
func tick(t *testing.T) time.Time {
	t.Helper()
	name := filepath.Join(t.TempDir(), "clock")
	var first time.Time
	for {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			t.Fatal(err)
		}
		now := time.Unix(st.Ctim.Sec, st.Ctim.Nsec)
		if first.IsZero() {
			first = now
		}
		if now.After(first) {
			return now
		}
	}
}

func TestChangedSince(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"nothing":   {func(string) error { return nil }, ""},
		"read":      {func(dir string) error { _, err := os.ReadFile(filepath.Join(dir, "a/file")); return err }, ""},
		"new file":  {func(dir string) error { return os.WriteFile(filepath.Join(dir, "new"), nil, 0o600) }, "."},
		"new below": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a/b/new"), nil, 0o600) }, "a/b"},
		"written":   {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a/file"), []byte("y"), 0o600) }, "a/file"},
		"gone":      {func(dir string) error { return os.Remove(filepath.Join(dir, "a/file")) }, "a"},
		"renamed":   {func(dir string) error { return os.Rename(filepath.Join(dir, "a/file"), filepath.Join(dir, "a/f")) }, "a"},
		"mode":      {func(dir string) error { return os.Chmod(filepath.Join(dir, "a/file"), 0o400) }, "a/file"},
		"time set back": {func(dir string) error {
			return os.Chtimes(filepath.Join(dir, "a/file"), time.Unix(1, 0), time.Unix(1, 0))
		}, "a/file"},
		"symlink": {func(dir string) error { return os.Lchown(filepath.Join(dir, "link"), os.Getuid(), os.Getgid()) }, "link"},
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a/file"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		since := tick(t)
		if err := tt.change(dir); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ChangedSince(t.Context(), root, since, 4); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
		root.Close()
	}
}
