package tree

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nobody is the user that root_squash makes of root.
const nobody = 65534

// squashed makes a tree owned by nobody, for a process of that user to remove.
func squashed(t *testing.T, content testDir) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to become nobody")
	}
	_, dir := quick(t, testDir{})
	testDir{"tree": content}.make(t, dir)
	err := filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, nobody, nobody))
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func chmod(t *testing.T, mode os.FileMode, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// Directories without permissions for their owner are unlocked and removed.
func TestRemoveWhatIsLocked(t *testing.T) {
	for _, mode := range []os.FileMode{0o555, 0, 0o400, 0o300, 0o177} {
		dir := squashed(t, testDir{"f": nil, "a": testDir{"f": nil, "b": testDir{"f": nil, "empty": testDir{}}}})
		deep := filepath.Join(dir, "tree/a/b", strings.Repeat("d/", 2*maxDepth))
		if err := os.MkdirAll(deep, 0o755); err != nil {
			t.Fatal(err)
		}
		for name := deep; len(name) > len(dir+"/tree"); name = filepath.Dir(name) {
			if err := os.Lchown(name, nobody, nobody); err != nil {
				t.Fatal(err)
			}
			chmod(t, mode, name)
		}
		chmod(t, mode, filepath.Join(dir, "tree"))
		got := removalOrder{dir: dir, Name: "tree", Workers: 4, Files: fewFiles, uid: nobody}.run(t)
		if got.Err != "" || got.Left != "" {
			t.Errorf("%o: %+v", mode, got)
		}
		mustHold(t, dir)
	}
}

// Entries of another user stay and are named; everything else is removed.
func TestRemoveLeavesWhatItMayNot(t *testing.T) {
	dir := squashed(t, testDir{"a": testDir{"f": nil}, "m": testDir{"theirs": testDir{"f": nil, "g": testDir{}}, "f": nil}, "z": testDir{"f": nil}, "f": nil})
	theirs := filepath.Join(dir, "tree/m/theirs")
	if err := os.Lchown(theirs, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	got := removalOrder{dir: dir, Name: "tree", Workers: 4, Files: fewFiles, uid: nobody}.run(t)
	if filepath.Dir(got.Left) != "tree/m/theirs" || !strings.Contains(got.By, unix.EACCES.Error()) || got.Err != "" {
		t.Errorf("got %+v, want that an entry of tree/m/theirs is left", got)
	}
	mustHold(t, filepath.Join(dir, "tree"), "m")
	mustHold(t, filepath.Join(dir, "tree/m"), "theirs")
	mustHold(t, theirs, "f", "g")
}

// A deep directory that cannot be moved is emptied in place.
func TestRemoveWhatCannotBeMoved(t *testing.T) {
	dir := squashed(t, testDir{})
	sticky := filepath.Join(dir, "tree", strings.Repeat("d/", maxDepth))
	kept := filepath.Join(sticky, "kept")
	below := filepath.Join(kept, strings.Repeat("d/", 2*maxDepth))
	if err := os.MkdirAll(below, 0o777); err != nil {
		t.Fatal(err)
	}
	for name := below; len(name) > len(dir+"/tree"); name = filepath.Dir(name) {
		if err := os.Lchown(name, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Lchown(sticky, 1234, 1234), os.Lchown(kept, 1234, 1234)); err != nil {
		t.Fatal(err)
	}
	chmod(t, 0o777, kept)
	chmod(t, 0o777|os.ModeSticky, sticky)
	got := removalOrder{dir: dir, Name: "tree", Workers: 4, Files: fewFiles, uid: nobody}.run(t)
	if !strings.HasSuffix(got.Left, "/d/kept") || got.Removed != 2*maxDepth || got.Err != "" {
		t.Errorf("got %+v, want that only kept is left", got)
	}
	mustHold(t, kept)
}
