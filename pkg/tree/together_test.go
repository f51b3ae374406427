package tree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Two controllers empty one trash: what the other one has removed is no error,
// however the kernel says that it is gone. What only seems to be gone is one.
func TestRemoveTogether(t *testing.T) {
	for _, says := range []error{unix.ENOENT, unix.ESTALE} {
		for _, gone := range []bool{true, false} {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "tree/a/b"), 0o700); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			_, err = RemoveWatched(t.Context(), root, "tree", 1, Watch{Before: func(context.Context) error {
				if gone {
					return errors.Join(says, os.RemoveAll(filepath.Join(dir, "tree")))
				}
				return says
			}})
			if want := !gone; (err != nil) != want || want && !errors.Is(err, says) {
				t.Errorf("%v, gone %v: %v", says, gone, err)
			}
			root.Close()
		}
	}
}
