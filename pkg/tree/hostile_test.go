package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// remover removes "tree" and calls do once, before the first change.
func removeWhile(t *testing.T, r *os.Root, do func() error) error {
	t.Helper()
	in, err := r.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_, err = Removal{Workers: 1, Before: func(_ context.Context, changes int64) error {
		if changes > 0 || do == nil {
			return nil
		}
		first := do
		do = nil
		return first()
	}}.Remove(t.Context(), in, "tree")
	return err
}

// Directories are replaced between being listed and being opened.
func TestRemoveWhatWasReplaced(t *testing.T) {
	for what, replace := range map[string]func(name string) error{
		"fifo":    func(name string) error { return unix.Mkfifo(name, 0o600) },
		"symlink": func(name string) error { return os.Symlink("../../canary", name) },
		"file":    func(name string) error { return os.WriteFile(name, nil, 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			// The file is listed before, between or after the directories.
			r, dir := quick(t, testDir{"canary": testDir{"keep": nil}, "tree": testDir{"a": testDir{}, "b": nil, "c": testDir{}, "d": testDir{}}})
			err := removeWhile(t, r, func() (err error) {
				for _, name := range []string{"a", "c", "d"} {
					name = filepath.Join(dir, "tree", name)
					err = errors.Join(err, os.Remove(name), replace(name))
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			mustHold(t, dir, "canary")
			mustHold(t, filepath.Join(dir, "canary"), "keep")
		})
	}
}

// Content that is moved out of the trash is left alone once that is noticed.
func TestRemoveLeavesWhatIsMovedAway(t *testing.T) {
	files := testDir{}
	for i := range 2000 {
		files[fmt.Sprint(i)] = nil
	}
	r, dir := quick(t, testDir{"tree": testDir{"wide": files}})
	err := removeWhile(t, r, func() error {
		return os.Rename(filepath.Join(dir, "tree/wide"), filepath.Join(dir, "rescued"))
	})
	if err != nil {
		t.Error(err)
	}
	mustHold(t, dir, "rescued")
	left, err := os.ReadDir(filepath.Join(dir, "rescued"))
	if err != nil || len(left) < 1000 {
		t.Errorf("%d of 2000 are left: %v", len(left), err)
	}
}

// A directory that keeps being filled stays, and everything else is removed.
func TestRemoveWhatIsWrittenTo(t *testing.T) {
	r, dir := quick(t, testDir{"tree": testDir{"a": testDir{"f": nil}, "busy": testDir{"f": nil}, "c": testDir{"f": nil}}})
	in, err := r.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	n := 0
	_, err = Removal{Workers: 1, Before: func(context.Context, int64) error {
		n++
		return os.WriteFile(filepath.Join(dir, "tree/busy", fmt.Sprint("new-", n)), nil, 0o600)
	}}.Remove(t.Context(), in, "tree")
	var left *LeftError
	if !errors.As(err, &left) || !errors.Is(err, ErrWritten) || left.Path != "tree/busy" {
		t.Errorf("got %v, want that tree/busy is written to", err)
	}
	mustHold(t, filepath.Join(dir, "tree"), "busy")
	if n > 1000 {
		t.Errorf("it took %d calls", n)
	}
}

// A removal that was interrupted anywhere is completed by the next one.
func TestRemoveGoesOn(t *testing.T) {
	r, dir := quick(t, testDir{})
	in, err := r.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	killed := errors.New("killed")
	for at := int64(0); ; at += 7 {
		mkdir(t, filepath.Join(dir, "tree"))
		wideAndDeep(2, 1).make(t, filepath.Join(dir, "tree"))
		_, err := Removal{Workers: 2, Before: func(_ context.Context, changes int64) error {
			if changes >= at {
				return killed
			}
			return nil
		}}.Remove(t.Context(), in, "tree")
		done := err == nil
		if !done && !errors.Is(err, killed) {
			t.Fatal(err)
		}
		if _, err := Remove(t.Context(), r, "tree", 2); err != nil {
			t.Errorf("after %d changes: %v", at, err)
		}
		mustHold(t, dir)
		if done {
			return
		}
	}
}

// mustHold compares the names in a directory.
func mustHold(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %q, %v, want %q", dir, got, err, want)
	}
}
