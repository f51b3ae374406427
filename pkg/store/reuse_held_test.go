package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A call that is killed at any step leaves the directory to the claim, and nobody
// else gets it: neither meanwhile nor afterwards.
func TestKilledReuseIsCompleted(t *testing.T) {
	for n := 1; ; n++ {
		l := newCluster(t, "one")
		before := l.claimed("pvc-1", "a", "x")
		before.Params.SubDir = "${pvc.metadata.name}"
		first := l.createAs(t, before)
		l.put(t, "x/file")
		next, stranger := before, l.claimed("pvc-3", "b", "x")
		next.Name, stranger.Params.SubDir = "pvc-2", before.Params.SubDir
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		_, err := l.Create(ctx, next)
		if !killed() {
			if err != nil || n < 4 {
				t.Fatalf("no step %d, and %v", n, err)
			}
			return
		}
		l.Store = l.start(t)
		if _, err := l.Create(t.Context(), stranger); !errors.Is(err, volume.ErrOwned) {
			t.Errorf("after step %d another claim: %v, want ErrOwned", n, err)
		}
		if n > 2 { // the old volume no longer exists
			l.never(t, "quarantine directory")
			l.delete(t, first)
		}
		l.createAs(t, next)
		l.delete(t, first)
		note := ".nfs-csi/" + catalog.ReusePath("x")
		l.mustHave(t, append(live("x"), "x/file", ".nfs-csi/names/pvc-2", ".nfs-csi/reuse", note)...)
		l.mustOwn(t, "x", "pvc-2")
		l.mustHaveNoTemp(t)
	}
}

// A claim may be made again before its directory has come to its volume.
func TestReuseByTheNextButOne(t *testing.T) {
	for _, at := range []string{"note reuse", "release record", "reserve name", "write record", "look for other directories of the name"} {
		l := newCluster(t, "one")
		l.createAs(t, l.claimed("pvc-1", "a", "x"))
		l.put(t, "a/x/file")
		l.failing(at, errors.New("killed"), func(context.Context) {})
		if _, err := l.Create(t.Context(), l.claimed("pvc-2", "a", "x")); err == nil {
			t.Errorf("%s: no such step", at)
		}
		l.createAs(t, l.claimed("pvc-3", "a", "x"))
		l.mustOwn(t, "a/x", "pvc-3")
		l.mustHaveAmong(t, append(live("a/x"), "a/x/file"))
	}
}

// Whatever another controller does while a directory is taken over, it ends as the
// claim's, and with its content unless the old volume was deleted while it was one.
func TestReuseAndAnotherController(t *testing.T) {
	steps := []string{"note reuse", "release record", "reserve name", "write record", "look for other directories of the name"}
	for i, at := range steps {
		for what, do := range map[string]func(*lab, *Store, volume.ID) error{
			"the same": func(l *lab, s *Store, _ volume.ID) error {
				_, err := s.Create(context.Background(), l.claimed("pvc-2", "a", "x"))
				return err
			},
			"delete": func(_ *lab, s *Store, first volume.ID) error { return s.Delete(context.Background(), first, nil) },
			"stranger": func(l *lab, s *Store, _ volume.ID) error {
				req := l.claimed("pvc-3", "b", "y")
				req.Params.SubDir = "a/x"
				_, err := s.Create(context.Background(), req)
				if !errors.Is(err, volume.ErrOwned) {
					return fmt.Errorf("another claim is not refused: %w", err)
				}
				return nil
			},
		} {
			t.Run(at+" "+what, func(t *testing.T) {
				l := newCluster(t, "one")
				first := l.createAs(t, l.claimed("pvc-1", "a", "x"))
				l.put(t, "a/x/file")
				other, held := l.start(t), false
				l.held(at, func(context.Context) {
					held = true
					if err := do(l, other, first); err != nil {
						t.Error(err)
					}
				})
				if _, err := l.Create(t.Context(), l.claimed("pvc-2", "a", "x")); err != nil && !errors.Is(err, volume.ErrInProgress) {
					t.Error(err)
				}
				l.createAs(t, l.claimed("pvc-2", "a", "x"))
				l.mustOwn(t, "a/x", "pvc-2")
				_, err := os.Stat(filepath.Join(l.dir, "a/x/file"))
				if deleted := what == "delete" && i < 2; (err != nil) != deleted || !held {
					t.Errorf("held: %v, its content: %v", held, err)
				}
			})
		}
	}
}

// A deletion of the old volume that is held up anywhere, while another controller
// gives its directory to the next one, spares that: it is there with its content, or
// it is new where the old one was as good as deleted.
func TestHeldUpDeleteAndReuse(t *testing.T) {
	steps := map[volume.OnDelete]map[string]bool{ // whether the content stays
		volume.OnDeleteDelete: {
			"quarantine directory": true, "check owner of quarantined directory": false, "move directory to trash": false,
			"prune parents": false, "remove record": false,
		},
		volume.OnDeleteRetain: {"remove record": true},
		volume.OnDeleteArchive: {
			"quarantine directory": true, "check owner of quarantined directory": false, "reserve archive": false,
			"rename to archive": false, "release archive": false, "remove record": false,
		},
	}
	for policy, list := range steps {
		for at, stays := range list {
			t.Run(string(policy)+" "+at, func(t *testing.T) {
				l := newCluster(t, "one")
				ask := func(name string) CreateRequest {
					req := l.claimed(name, "a", "x")
					req.Params.OnDelete = policy
					return req
				}
				first := l.createAs(t, ask("pvc-1"))
				l.put(t, "a/x/file")
				other, taken := l.start(t), false
				l.held(at, func(ctx context.Context) {
					_, err := other.Create(ctx, ask("pvc-2"))
					taken = err == nil
					if stays != taken || err != nil && !errors.Is(err, volume.ErrInProgress) {
						t.Errorf("taken over meanwhile: %v", err)
					}
				})
				l.delete(t, first)
				second := l.createAs(t, ask("pvc-2"))
				l.delete(t, first)
				l.mustOwn(t, "a/x", "pvc-2")
				if _, err := os.Stat(filepath.Join(l.dir, "a/x/file")); (err == nil) != stays {
					t.Errorf("its content: %v", err)
				}
				if _, err := l.Get(t.Context(), second, nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Nor does it take the directory while that has no record, in the middle of what the
// other controller does, or is killed in.
func TestHeldUpDeleteAndHalfAReuse(t *testing.T) {
	for _, policy := range []volume.OnDelete{volume.OnDeleteDelete, volume.OnDeleteArchive} {
		l := newCluster(t, "one")
		ask := func(name string) CreateRequest {
			req := l.claimed(name, "a", "x")
			req.Params.OnDelete = policy
			return req
		}
		first := l.createAs(t, ask("pvc-1"))
		l.put(t, "a/x/file")
		other := &lab{Store: l.start(t)}
		other.failing("write record", errors.New("killed"), func(context.Context) {})
		l.held("quarantine directory", func(ctx context.Context) {
			if _, err := other.Create(ctx, ask("pvc-2")); err == nil {
				t.Error("it was not killed")
			}
		})
		l.delete(t, first)
		l.createAs(t, ask("pvc-2"))
		l.mustOwn(t, "a/x", "pvc-2")
		l.mustHaveAmong(t, append(live("a/x"), "a/x/file"))
	}
}

// Nor where there is no room for the trash, and it would be emptied in its place.
func TestDeleteWithoutRoomAndHalfAReuse(t *testing.T) {
	l := newCluster(t, "one")
	l.put(t, "a/x/file")
	other := &lab{Store: l.start(t)}
	l.full("quarantine directory", func(ctx context.Context) {
		if _, err := other.Create(ctx, l.claimed("pvc-1", "a", "x")); err != nil {
			t.Error(err)
		}
		other.failing("write record", errors.New("killed"), func(context.Context) {})
		if _, err := other.Create(ctx, l.claimed("pvc-2", "a", "x")); err == nil {
			t.Error("it was not killed")
		}
	})
	if err := l.Delete(t.Context(), l.id("a/x"), nil); err == nil {
		t.Error("deleted")
	}
	l.createAs(t, l.claimed("pvc-2", "a", "x"))
	l.mustHaveAmong(t, append(live("a/x"), "a/x/file"))
}

// A directory on its way from one volume of a claim to the next is no stranger's, also
// where the stranger found it free just before, is killed with a record of its own in
// place, and asks again.
func TestKilledStrangerGetsNoReusedDirectory(t *testing.T) {
	l := newCluster(t, "one")
	l.put(t, "a/x/file")
	stranger, other := l.claimed("pvc-3", "b", "y"), l.start(t)
	stranger.Params.SubDir = "a/x"
	ctx, killed := context.WithCancel(t.Context())
	other.step = func(ctx context.Context, name string) error {
		switch name {
		case "write record":
			l.createAs(t, l.claimed("pvc-1", "a", "x"))
			l.failing("write record", errors.New("killed"), func(context.Context) {})
			if _, err := l.Create(ctx, l.claimed("pvc-2", "a", "x")); err == nil {
				t.Error("the takeover was not killed")
			}
		case "look for the directory's next volume":
			killed()
			runtime.Goexit()
		}
		return nil
	}
	if _, err := other.Create(ctx, stranger); err == nil || ctx.Err() == nil {
		t.Fatalf("not killed: %v", err)
	}
	other.exports.Wait()
	l.mustOwn(t, "a/x", "pvc-3")
	l.Store = l.start(t)
	if _, err := l.Create(t.Context(), stranger); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("it was given the directory: %v, want ErrOwned", err)
	}
	l.mustHaveAmong(t, []string{"a/x/file"})
}

// Nor where it comes between the two, at whatever step it is killed.
func TestStrangerAtAReusedDirectory(t *testing.T) {
	for n := 1; ; n++ {
		l := newCluster(t, "one")
		l.createAs(t, l.claimed("pvc-1", "a", "x"))
		l.put(t, "a/x/file")
		l.failing("write record", errors.New("killed"), func(context.Context) {})
		if _, err := l.Create(t.Context(), l.claimed("pvc-2", "a", "x")); err == nil {
			t.Fatal("the takeover was not killed")
		}
		stranger := l.claimed("pvc-3", "b", "y")
		stranger.Params.SubDir = "a/x"
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		_, err := l.Create(ctx, stranger)
		last := !killed()
		if err == nil || last && !errors.Is(err, volume.ErrOwned) {
			t.Errorf("at step %d: %v", n, err)
		}
		l.Store = l.start(t)
		l.createAs(t, l.claimed("pvc-2", "a", "x"))
		l.mustHaveAmong(t, append(live("a/x"), "a/x/file"))
		if last {
			return
		}
	}
}

// The note goes with the claim's volume, also where a stranger's record hid from one of
// two controllers that the directory was being taken over.
func TestReuseBehindAStranger(t *testing.T) {
	l := newCluster(t, "one")
	l.createAs(t, l.claimed("pvc-1", "a", "x"))
	l.put(t, "a/x/file")
	second, late := l.claimed("pvc-2", "a", "x"), l.start(t)
	first, stranger := l.claimed("pvc-2", "a", "x"), l.claimed("pvc-3", "b", "y")
	stranger.Params.SubDir = "a/x"
	l.failing("write record", errors.New("killed"), func(context.Context) {})
	if _, err := l.Create(t.Context(), first); err == nil {
		t.Fatal("the takeover was not killed")
	}
	_ = l.onCatalog(t, func(x *session.Session) error {
		want, err := late.cfg.volumes().Record(second, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		want.Adopted = true // it found a stranger's record, and then none
		c := volumes.NewClaim(x, second, want, late.copies.Busy)
		if err := c.Take(t.Context()); !errors.Is(err, volume.ErrInProgress) {
			t.Errorf("made without the note: %v, want ErrInProgress", err)
		}
		return nil
	})
	id := l.createAs(t, second)
	l.delete(t, id)
	l.mustHave(t, ".nfs-csi/reuse")
}
