package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// One name is one volume, whether it shares its directory or not.
func TestOneNameSharedOrNot(t *testing.T) {
	l := newLab(t)
	l.createAs(t, l.sharing("pvc-1", "data"))
	l.create(t, "pvc-2")
	larger := l.sharing("pvc-1", "data")
	larger.Size.Required = 5 << 30
	for _, req := range []CreateRequest{l.request("pvc-1"), l.classed("pvc-1", "x", ""), l.sharing("pvc-1", "x"), larger, l.sharing("pvc-2", "data")} {
		if _, err := l.Create(t.Context(), req); !errors.Is(err, volume.ErrIncompatible) {
			t.Errorf("%s in %q: %v, want ErrIncompatible", req.Name, req.Params.SubDir, err)
		}
	}
	l.mustHaveAmong(t, shared("data", "pvc-1"))
}

// A controller that is killed at any step of making or deleting one leaves nothing
// that a repeated call does not complete.
func TestKilledShared(t *testing.T) {
	for _, what := range []string{"create", "delete"} {
		for n := 1; ; n++ {
			l := newLab(t)
			req := l.sharing("pvc-1", "team/data")
			req.Params.Mode = 0o2770
			if what == "delete" {
				l.createAs(t, req)
			}
			id := volume.ID{Export: l.export, SubDir: "team/data", Name: "pvc-1", OnDelete: volume.OnDeleteRetain}
			do := func(ctx context.Context) error {
				if what == "delete" {
					return l.Delete(ctx, id, nil)
				}
				_, err := l.Create(ctx, req)
				return err
			}
			ctx, killed := l.killAt(t.Context(), l.Store, n)
			err := do(ctx)
			if !killed() {
				if err != nil || n < 2 {
					t.Fatalf("%s: no step %d, and %v", what, n, err)
				}
				break
			}
			l.Store = l.start(t)
			if err := errors.Join(do(t.Context()), do(t.Context())); err != nil {
				t.Errorf("%s, killed at step %d: %v", what, n, err)
			}
			want := append(shared("team/data"), "team", ".nfs-csi/volumes/team")
			if what == "create" {
				want = append(want, shared("team/data", "pvc-1")[3:]...)
				if mode, _, _ := l.stat(t, "team/data"); mode != 0o2770 {
					t.Errorf("killed at step %d: it has mode %s", n, mode)
				}
			}
			l.mustHave(t, want...)
		}
	}
}

// A directory that the server does not let the driver make leaves no claim on it
// behind, and volumes that are there are not given up for it.
func TestSharedDirectoryThatCannotBeMade(t *testing.T) {
	l := newLab(t)
	refuse := func(name string) {
		t.Helper()
		l.failing("create directory", volume.ErrRefused, nothing)
		if _, err := l.Create(t.Context(), l.sharing(name, "data")); !errors.Is(err, volume.ErrRefused) {
			t.Errorf("got %v, want ErrRefused", err)
		}
	}
	refuse("pvc-1")
	l.mustHave(t)
	l.createAs(t, l.sharing("pvc-1", "data"))
	if err := os.Remove(filepath.Join(l.dir, "data")); err != nil {
		t.Fatal(err)
	}
	refuse("pvc-2")
	l.createAs(t, l.sharing("pvc-2", "data"))
	l.mustHave(t, shared("data", "pvc-1", "pvc-2")...)
}

// Two controllers at a time, of which one has just begun.
func TestTwoControllersShare(t *testing.T) {
	for _, at := range []string{"write record", "create directory", "answer", "reserve name", "look for other directories of the name"} {
		l := newLab(t)
		other, held := l.start(t), false
		l.held(at, func(ctx context.Context) {
			held = true
			for _, name := range []string{"pvc-1", "pvc-2"} {
				if _, err := other.Create(ctx, l.sharing(name, "data")); err != nil {
					t.Errorf("%s: %v", at, err)
				}
			}
		})
		l.createAs(t, l.sharing("pvc-1", "data"))
		l.mustHave(t, shared("data", "pvc-1", "pvc-2")...)
		if !held {
			t.Errorf("no step %q", at)
		}
	}
}

// Nor does a volume that gives its name back take the directory with it, or find one
// in a volume that is called like a shared directory's record.
func TestSharedVolumeGivesWay(t *testing.T) {
	l := newLab(t)
	l.createAs(t, l.classed("shared directory", "x", ""))
	other := l.start(t)
	l.held("write record", func(context.Context) {
		l.held("write record", func(ctx context.Context) {
			if _, err := other.Create(ctx, l.request("pvc-1")); err != nil {
				t.Error(err)
			}
		})
	})
	if _, err := l.Create(t.Context(), l.sharing("pvc-1", "data")); !errors.Is(err, volume.ErrIncompatible) {
		t.Errorf("got %v, want ErrIncompatible", err)
	}
	l.mustHave(t, slices.Concat(shared("data"), live("pvc-1"), live("x"), []string{".nfs-csi/names/" + "shared directory"})...)
}
