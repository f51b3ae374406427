package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// testDir is a tree as a literal: a nil value is a file, a string the target of
// a symlink, a testDir a directory.
type testDir map[string]any

func (d testDir) make(t testing.TB, at string) {
	t.Helper()
	for name, v := range d {
		p := filepath.Join(at, name)
		var err error
		switch v := v.(type) {
		case testDir:
			if err = os.Mkdir(p, 0o755); err == nil {
				v.make(t, p)
			}
		case string:
			err = os.Symlink(v, p)
		default:
			err = os.WriteFile(p, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func root(t testing.TB, content testDir) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	content.make(t, dir)
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, dir
}

func TestRemove(t *testing.T) {
	for _, workers := range []int{1, 2, 16} {
		r, dir := root(t, testDir{
			"canary": testDir{"keep": nil},
			"gone": testDir{
				"a": nil, "b": testDir{"c": testDir{"d": testDir{}}, "e": nil},
				"up": "../canary", "absolute": "/etc", "self": ".", "dangling": "nowhere",
			},
		})
		n, err := Remove(t.Context(), r, "gone", workers)
		if err != nil || n != 10 {
			t.Errorf("%d workers: removed %d, %v, want 10", workers, n, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "gone")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%d workers: it is still there: %v", workers, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "canary/keep")); err != nil {
			t.Errorf("%d workers: followed a symlink: %v", workers, err)
		}
	}
}

func TestRemoveNotADirectory(t *testing.T) {
	r, dir := root(t, testDir{"canary": testDir{"keep": nil}, "link": "canary", "file": nil})
	for _, name := range []string{"link", "file", "missing"} {
		if _, err := Remove(t.Context(), r, name, 4); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left are %v, %v, want canary", names, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "canary/keep")); err != nil {
		t.Error(err)
	}
}

func TestRemoveMany(t *testing.T) {
	files := testDir{}
	for i := range 3000 {
		files[fmt.Sprint(i)] = nil
	}
	r, _ := quick(t, testDir{"wide": files})
	if n, err := Remove(t.Context(), r, "wide", 8); err != nil || n != 3001 {
		t.Errorf("removed %d, %v", n, err)
	}
}

func TestRemoveDeep(t *testing.T) {
	deep := testDir{}
	for range 300 {
		deep = testDir{"d": deep, "f": nil}
	}
	r, _ := root(t, testDir{"deep": deep})
	if n, err := Remove(t.Context(), r, "deep", 4); err != nil || n != 601 {
		t.Errorf("removed %d, %v", n, err)
	}
}

func TestRemoveStopsWithContext(t *testing.T) {
	r, dir := root(t, testDir{"tree": testDir{"a": nil}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Remove(ctx, r, "tree", 4); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tree/a")); err != nil {
		t.Errorf("removed after the end: %v", err)
	}
}
