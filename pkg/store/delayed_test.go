package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A call that is held up, as by a network that is away, goes on when its volume
// is long gone and its directory is that of another one.
func TestDelayedDeleteSparesALaterVolume(t *testing.T) {
	l := newLab(t)
	req := l.request("pvc-1")
	req.Params.SubDir = "data"
	first, err := l.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	other, step := l.start(t), l.step
	l.step = func(ctx context.Context, name string) error {
		if name == "quarantine directory" {
			req.Name = "pvc-2"
			_, err := other.Create(ctx, req)
			if !errors.Is(err, volume.ErrOwned) {
				t.Errorf("created while it is deleted: %v", err)
			}
			if err = other.Delete(ctx, first.ID, nil); err == nil {
				_, err = other.Create(ctx, req)
			}
			if err != nil {
				t.Error(err)
			}
			l.put(t, "data/precious")
		}
		return step(ctx, name)
	}
	if err := l.Delete(t.Context(), first.ID, nil); err != nil {
		t.Error(err)
	}
	l.mustHave(t, append(live("data"), "data/precious", ".nfs-csi/names/pvc-2")...)
}

// Nor does one that found no record take a directory which a volume has adopted
// meanwhile.
func TestDelayedDeleteSparesAnAdoptedDirectory(t *testing.T) {
	l := newLab(t)
	l.put(t, "data/precious")
	other, step := l.start(t), l.step
	l.step = func(ctx context.Context, name string) error {
		if name == "quarantine directory" {
			req := l.request("pvc-1")
			req.Params.SubDir = "data"
			if _, err := other.Create(ctx, req); err != nil {
				t.Error(err)
			}
		}
		return step(ctx, name)
	}
	if err := l.Delete(t.Context(), volume.ID{Export: l.export, SubDir: "data", Name: "legacy"}, nil); err != nil {
		t.Error(err)
	}
	l.mustHave(t, append(live("data"), "data/precious", ".nfs-csi/names/pvc-1")...)
}

// held lets do happen while the store's next call is held up at a step. A test in
// which no call comes to it fails.
func (l *lab) held(at string, do func(context.Context)) {
	l.failing(at, nil, do)
}

// failing is held with a step that fails then.
func (l *lab) failing(at string, err error, do func(context.Context)) {
	step, met := l.step, l.awaits(at)
	l.step = func(ctx context.Context, name string) error {
		if name != at {
			return step(ctx, name)
		}
		met()
		l.step = step
		do(ctx)
		if err != nil {
			return err
		}
		return step(ctx, name)
	}
}

// never fails the test when a call comes to a step from now on.
func (l *lab) never(t *testing.T, at string) {
	step := l.step
	l.step = func(ctx context.Context, name string) error {
		if name == at {
			t.Errorf("came to the step %q", at)
		}
		return step(ctx, name)
	}
}

// awaits notes that a call is to come to a step: without that the test would show
// nothing.
func (l *lab) awaits(at string) (met func()) {
	if l.awaited == nil { // another controller of a lab
		return func() {}
	}
	key := new(at)
	l.awaited.Store(key, nil)
	return func() { l.awaited.Delete(key) }
}

func (l *lab) mustHaveMet(t *testing.T) {
	l.awaited.Range(func(key, _ any) bool {
		t.Errorf("no call came to the step %q", *key.(*string))
		return true
	})
}

// A delete that is run again, for example after a stale mount, still deletes the volume it
// found first, and not a later one with the same ID.
func TestDeleteBegunAnewSparesALaterVolume(t *testing.T) {
	l := newLab(t)
	id, other := l.create(t, "pvc-1"), l.start(t)
	l.failing("quarantine directory", unix.ESTALE, func(ctx context.Context) {
		if err := other.Delete(ctx, id, nil); err != nil {
			t.Error(err)
		}
		if _, err := other.Create(ctx, l.request("pvc-1")); err != nil {
			t.Error(err)
		}
		l.put(t, "pvc-1/precious")
	})
	l.delete(t, id)
	l.mustHave(t, append(live("pvc-1"), "pvc-1/precious")...)
	l.delete(t, id)
	l.mustHave(t)
}

// A delete that is held up anywhere leaves alone what has come after another
// controller's delete of the volume: the directory, the record, and the archive.
func TestHeldUpDeleteSparesALaterVolume(t *testing.T) {
	steps := map[volume.OnDelete][]string{
		volume.OnDeleteDelete:  {"quarantine directory", "check owner of quarantined directory", "move directory to trash", "prune parents", "remove record"},
		volume.OnDeleteRetain:  {"mark directory as retained", "remove record"},
		volume.OnDeleteArchive: {"quarantine directory", "check owner of quarantined directory", "reserve archive", "rename to archive", "release archive", "remove record"},
	}
	for policy, list := range steps {
		for _, at := range list {
			for _, name := range []string{"pvc-1", "pvc-2"} { // of the later volume
				t.Run(string(policy)+" "+at+" "+name, func(t *testing.T) {
					l := newLab(t)
					first := l.createAs(t, l.classed("pvc-1", "team/data", policy))
					other, later := l.start(t), volume.ID{}
					l.held(at, func(ctx context.Context) {
						if err := other.Delete(ctx, first, nil); err != nil {
							t.Error(err)
						}
						v, err := other.Create(ctx, l.classed(name, "team/data", policy))
						if err != nil {
							t.Error(err)
						}
						later = v.ID
						l.put(t, "team/data/precious")
					})
					if err := l.Delete(t.Context(), first, nil); err != nil {
						t.Error(err)
					}
					want := append(live("team/data"), "team", "team/data/precious", ".nfs-csi/volumes/team")
					if policy == volume.OnDeleteArchive {
						want = append(want, "team/archived-data")
					}
					if at == "mark directory as retained" { // as long as there is the record, nobody goes by it
						want = append(want, retained(t, "team/data"))
					}
					// Of one name in one directory it may take the note, without which only
					// the same name in another directory is not seen.
					if err := os.RemoveAll(filepath.Join(l.dir, ".nfs-csi/names")); err != nil {
						t.Error(err)
					}
					l.mustHave(t, want...)
					if _, err := l.Get(t.Context(), later, nil); err != nil {
						t.Errorf("the later volume: %v", err)
					}
				})
			}
		}
	}
}

// Nor does a change of a volume that is gone become one of a later volume.
func TestHeldUpChangeSparesALaterVolume(t *testing.T) {
	l := newLab(t)
	first := l.createAs(t, l.classed("pvc-1", "data", ""))
	other := l.start(t)
	l.held("replace record", func(ctx context.Context) {
		if err := other.Delete(ctx, first, nil); err != nil {
			t.Error(err)
		}
		if _, err := other.Create(ctx, l.classed("pvc-2", "data", "")); err != nil {
			t.Error(err)
		}
	})
	if size, err := l.Expand(t.Context(), first, SizeRange{Required: 5 << 30}, nil); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("expanded to %d, %v, want that it is gone", size, err)
	}
	if v, err := l.Create(t.Context(), l.classed("pvc-2", "data", "")); err != nil || v.Capacity != 1<<30 {
		t.Errorf("the later volume: %+v, %v", v, err)
	}
}
