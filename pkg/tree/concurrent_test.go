package tree

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Two controllers empty the same trash; entries removed by the other are not an error.
func TestRemoveTogether(t *testing.T) {
	r, dir := quick(t, testDir{"tree": wideAndDeep(3, 4)})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := Remove(t.Context(), r, "tree", 2); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := os.Lstat(filepath.Join(dir, "tree")); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// wideAndDeep has many directories, and more levels than are emptied in place.
func wideAndDeep(width, levels int) testDir {
	d := testDir{}
	for i := range 2 * maxDepth {
		d = testDir{"d": d, "f": nil}
		if i%10 == 0 {
			d["e"] = testDir{}
		}
	}
	for range levels {
		level := testDir{"f": nil}
		for i := range width {
			level[string(rune('a'+i))] = d
		}
		d = level
	}
	return d
}

// Another process removes the whole tree meanwhile.
func TestRemoveWhatGoes(t *testing.T) {
	r, dir := quick(t, testDir{"tree": testDir{"a": testDir{"b": testDir{"c": nil}}, "d": testDir{"e": nil}}})
	in, err := r.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_, err = Removal{Workers: 1, Before: func(context.Context, int64) error {
		return os.RemoveAll(filepath.Join(dir, "tree"))
	}}.Remove(t.Context(), in, "tree")
	if err != nil {
		t.Error(err)
	}
}
