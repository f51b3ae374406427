package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func (l *lab) from(name string, src Source) CreateRequest {
	req := l.request(name)
	req.Source = &src
	return req
}

func (l *lab) snapshotReq(name string, id volume.ID) SnapshotRequest {
	return SnapshotRequest{Name: name, Source: id}
}

func (l *lab) snapshot(t *testing.T, name string, id volume.ID) Snapshot {
	t.Helper()
	s, err := l.CreateSnapshot(t.Context(), l.snapshotReq(name, id))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func snap(name string, files ...string) []string {
	base := ".nfs-csi/snapshots/" + name
	out := []string{base, base + "/record.json", base + "/data"}
	for _, f := range files {
		out = append(out, base+"/data/"+f)
	}
	return out
}

func (l *lab) mustHaveNoTemp(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(l.dir, ".nfs-csi/tmp"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for _, e := range left {
		t.Errorf("left in tmp: %s", e.Name())
	}
}

func (l *lab) content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(l.dir, path))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestSnapshotAndRestore(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.put(t, "pvc-1/d/file")
	s := l.snapshot(t, "snap-1", id)
	if s.ID.String() != "nfs.test#export#snap-1#snap-1#pvc-1" || s.Bytes != int64(len("pvc-1/d/file")) || s.SourceID != id.String() {
		t.Errorf("made %+v", s)
	}
	if err := os.Remove(filepath.Join(l.dir, "pvc-1/d/file")); err != nil {
		t.Fatal(err)
	}
	l.put(t, "pvc-1/later")
	if again := l.snapshot(t, "snap-1", id); again != s {
		t.Errorf("again: %+v, want the same %+v", again, s)
	}
	for range 2 {
		v, err := l.Create(t.Context(), l.from("pvc-2", Source{Snapshot: &s.ID}))
		if err != nil || v.ID.String() != "nfs.test#export#pvc-2##delete" || v.Capacity != 1<<30 {
			t.Fatalf("restored %+v, %v", v, err)
		}
	}
	if got := l.content(t, "pvc-2/d/file"); got != "pvc-1/d/file" {
		t.Errorf("restored %q", got)
	}
	l.mustHave(t, slices.Concat(live("pvc-1"), live("pvc-2"), snap("snap-1", "d", "d/file"),
		[]string{"pvc-1/d", "pvc-1/later", "pvc-2/d", "pvc-2/d/file"})...)
	l.mustHaveNoTemp(t)
	for range 2 {
		if err := l.DeleteSnapshot(t.Context(), s.ID, nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.GetSnapshot(t.Context(), s.ID, nil); !errors.Is(err, volume.ErrSnapshotNotFound) {
		t.Errorf("deleted and got with %v", err)
	}
	l.mustHave(t, slices.Concat(live("pvc-1"), live("pvc-2"), []string{"pvc-1/d", "pvc-1/later", "pvc-2/d", "pvc-2/d/file"})...)
}

func TestCloneToAnotherExport(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.put(t, "pvc-1/file")
	if err := os.Chmod(filepath.Join(l.dir, "pvc-1"), 0o2770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	other, dir := volume.Export{Server: "other.test", Share: "/"}, t.TempDir()
	l.fake.AddExport(other, dir)
	req := l.from("clone", Source{Volume: &id})
	req.Params.Export = other
	v, err := l.Create(t.Context(), req)
	if err != nil || v.ID.Export != other {
		t.Fatalf("cloned to %+v, %v", v, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "clone/file")); err != nil || string(b) != "pvc-1/file" {
		t.Errorf("%q, %v", b, err)
	}
	info, err := os.Stat(filepath.Join(dir, "clone"))
	if err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o770 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	s, err := l.CreateSnapshot(t.Context(), SnapshotRequest{Name: "far", Source: id, Export: &other})
	if err != nil || s.ID.Export != other {
		t.Fatalf("snapshot %+v, %v", s, err)
	}
	if _, err := l.Create(t.Context(), l.from("back", Source{Snapshot: &s.ID})); err != nil {
		t.Error(err)
	}
	if got := l.content(t, "back/file"); got != "pvc-1/file" {
		t.Errorf("%q", got)
	}
}

func TestSourceThatIsNotThere(t *testing.T) {
	l := newLab(t)
	none, noSnap := l.id("none"), volume.SnapshotID{Export: l.export, Name: "none", Source: "pvc-1"}
	later := l.create(t, "pvc-1")
	later.Name = "an-older-volume"
	if err := os.Symlink("pvc-1", filepath.Join(l.dir, "link")); err != nil {
		t.Fatal(err)
	}
	link := l.id("link")
	l.put(t, "ns/pvc-9/data")
	for name, src := range map[string]Source{
		"no volume": {Volume: &none}, "no snapshot": {Snapshot: &noSnap}, "replaced by another": {Volume: &later}, "symlink": {Volume: &link},
	} {
		if _, err := l.Create(t.Context(), l.from("new", src)); !errors.Is(err, volume.ErrNotFound) && !errors.Is(err, volume.ErrSnapshotNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if src.Volume != nil {
			if _, err := l.CreateSnapshot(t.Context(), l.snapshotReq("s", *src.Volume)); !errors.Is(err, volume.ErrNotFound) {
				t.Errorf("snapshot, %s: %v", name, err)
			}
		}
	}
	l.mustHave(t, append(live("pvc-1"), "link", "ns", "ns/pvc-9", "ns/pvc-9/data")...)
	l.mustHaveNoTemp(t)
}

func TestCreateFromRefuses(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.put(t, "pvc-1/file")
	l.put(t, "kept/data")
	if _, err := l.Create(t.Context(), l.from("kept", Source{Volume: &id})); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("over a directory: %v, want ErrOwned", err)
	}
	if _, err := l.Create(t.Context(), l.from("pvc-1", Source{Volume: &id})); !errors.Is(err, volume.ErrIncompatible) {
		t.Errorf("over an empty volume: %v, want ErrIncompatible", err)
	}
	other := l.create(t, "pvc-2")
	l.snapshot(t, "s", id)
	if _, err := l.CreateSnapshot(t.Context(), l.snapshotReq("s", other)); !errors.Is(err, volume.ErrSnapshotDiffers) {
		t.Errorf("name of another's snapshot: %v", err)
	}
	if _, err := l.Create(t.Context(), l.from("clone", Source{Volume: &id})); err != nil {
		t.Error(err)
	}
	if _, err := l.Create(t.Context(), l.from("clone", Source{Volume: &other})); !errors.Is(err, volume.ErrIncompatible) {
		t.Errorf("from another source: %v, want ErrIncompatible", err)
	}
	if _, err := l.Create(t.Context(), l.request("clone")); !errors.Is(err, volume.ErrIncompatible) {
		t.Errorf("from no source: %v, want ErrIncompatible", err)
	}
}

// link makes another name of a file.
func (l *lab) link(t *testing.T, name, link string) {
	t.Helper()
	if err := os.Link(filepath.Join(l.dir, name), filepath.Join(l.dir, link)); err != nil {
		t.Fatal(err)
	}
}

// Whatever step the process is killed at, the same call completes exactly once.
func TestKilledCopiesAreCompleted(t *testing.T) {
	for name, call := range map[string]func(context.Context, *lab, *Store, volume.ID, Snapshot) error{
		"clone": func(ctx context.Context, l *lab, s *Store, id volume.ID, _ Snapshot) error {
			_, err := s.Create(ctx, l.from("new", Source{Volume: &id}))
			return err
		},
		"restore": func(ctx context.Context, l *lab, s *Store, _ volume.ID, have Snapshot) error {
			_, err := s.Create(ctx, l.from("new", Source{Snapshot: &have.ID}))
			return err
		},
		"snapshot": func(ctx context.Context, l *lab, s *Store, id volume.ID, _ Snapshot) error {
			_, err := s.CreateSnapshot(ctx, l.snapshotReq("new", id))
			return err
		},
		"delete snapshot": func(ctx context.Context, _ *lab, s *Store, _ volume.ID, have Snapshot) error {
			return s.DeleteSnapshot(ctx, have.ID, nil)
		},
	} {
		want := slices.Concat(live("pvc-1"), []string{"pvc-1/a", "pvc-1/a/b", "pvc-1/a/link"})
		if name != "delete snapshot" {
			want = append(want, snap("snap", "a", "a/b", "a/link")...)
		}
		switch name {
		case "clone", "restore":
			want = slices.Concat(want, live("new"), []string{"new/a", "new/a/b", "new/a/link"})
		case "snapshot":
			want = append(want, snap("new", "a", "a/b", "a/link")...)
		}
		for n := 1; ; n++ {
			l := newLab(t)
			id := l.create(t, "pvc-1")
			l.put(t, "pvc-1/a/b")
			l.link(t, "pvc-1/a/b", "pvc-1/a/link")
			have := l.snapshot(t, "snap", id)
			ctx, killed := l.killAt(t.Context(), l.Store, n)
			err := call(ctx, l, l.Store, id, have)
			if !killed() {
				if err != nil || n < 3 {
					t.Fatalf("%s: no step %d, and %v", name, n, err)
				}
				break
			}
			if err == nil {
				t.Fatalf("%s: killed at step %d and answered", name, n)
			}
			l.Store = l.start(t)
			if err := call(t.Context(), l, l.Store, id, have); err != nil {
				t.Errorf("%s: after being killed at step %d: %v", name, n, err)
			}
			l.mustHave(t, want...)
			l.mustHaveNoTemp(t)
		}
	}
}

// blockAt stops the store at a step until release is called.
func (l *lab) blockAt(name string) (blocked <-chan struct{}, release func()) {
	at, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l.step = func(ctx context.Context, step string) error {
		if step == name {
			once.Do(func() { close(at) })
			select {
			case <-free:
			case <-ctx.Done():
			}
		}
		return ctx.Err()
	}
	return at, sync.OnceFunc(func() { close(free) })
}

func TestTheNextCallJoinsTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		id := l.create(t, "pvc-1")
		l.put(t, "pvc-1/file")
		copied := 0
		free := make(chan struct{})
		l.step = func(ctx context.Context, step string) error {
			switch step {
			case "copy":
				copied++
			case "move snapshot into place":
				<-free
			}
			return ctx.Err()
		}
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := l.CreateSnapshot(short, l.snapshotReq("s", id))
		if !errors.Is(err, volume.ErrInProgress) || !strings.Contains(err.Error(), "copying 10 B, 1 files") {
			t.Errorf("got %v, want ErrInProgress with the progress", err)
		}
		if copies, _, _ := l.copies.Backlog(); copies != 1 {
			t.Errorf("%d copies in the backlog", copies)
		}
		if err := l.Delete(t.Context(), id, nil); !errors.Is(err, volume.ErrInUse) {
			t.Errorf("delete of the source: %v, want ErrInUse", err)
		}
		joined := make(chan error, 1)
		go func() {
			_, err := l.CreateSnapshot(t.Context(), l.snapshotReq("s", id))
			joined <- err
		}()
		synctest.Wait() // until both the copy and the second call wait
		select {
		case err := <-joined:
			t.Fatalf("the second call did not wait for the copy: %v", err)
		default:
		}
		close(free)
		if err := <-joined; err != nil {
			t.Error(err)
		}
		l.copies.Wait()
		if copied != 1 {
			t.Errorf("copied %d times", copied)
		}
		if err := l.Delete(t.Context(), id, nil); err != nil {
			t.Error(err)
		}
		l.mustHave(t, snap("s", "file")...)
	})
}

func TestFailureIsKeptForTheNextCall(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	fail := errors.New("the disk is on fire")
	at, free := make(chan struct{}), make(chan struct{})
	l.step = func(_ context.Context, step string) error {
		if step == "copy" {
			close(at)
			<-free
			return fail
		}
		return nil
	}
	short, cancel := context.WithCancel(t.Context())
	go func() { <-at; cancel() }()
	if _, err := l.Create(short, l.from("new", Source{Volume: &id})); !errors.Is(err, volume.ErrInProgress) {
		t.Errorf("got %v, want ErrInProgress", err)
	}
	close(free)
	l.copies.Wait()
	if _, err := l.Create(t.Context(), l.from("new", Source{Volume: &id})); !errors.Is(err, fail) {
		t.Errorf("got %v, want what the copy failed with", err)
	}
	l.mustHave(t, live("pvc-1")...)
	l.step = func(context.Context, string) error { return nil }
	if _, err := l.Create(t.Context(), l.from("new", Source{Volume: &id})); err != nil {
		t.Error(err)
	}
}

func TestDeleteEndsTheCopy(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.put(t, "pvc-1/file")
	for _, step := range []string{"move copy into place", "move snapshot into place"} {
		blocked, _ := l.blockAt(step)
		made := make(chan error, 1)
		go func() {
			var err error
			if step == "move copy into place" {
				_, err = l.Create(t.Context(), l.from("new", Source{Volume: &id}))
			} else {
				_, err = l.CreateSnapshot(t.Context(), l.snapshotReq("new", id))
			}
			made <- err
		}()
		<-blocked
		var err error
		if step == "move copy into place" {
			err = l.Delete(t.Context(), l.id("new"), nil)
		} else {
			err = l.DeleteSnapshot(t.Context(), volume.SnapshotID{Export: l.export, Name: "new", Source: "pvc-1"}, nil)
		}
		if err != nil {
			t.Errorf("%s: %v", step, err)
		}
		if err := <-made; !errors.Is(err, copyjob.ErrDeleted) {
			t.Errorf("%s: the creator got %v", step, err)
		}
		l.mustHave(t, append(live("pvc-1"), "pvc-1/file")...)
		l.mustHaveNoTemp(t)
	}
}

// Another controller deletes the source while this one copies it.
func TestSourceDeletedMeanwhile(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.put(t, "pvc-1/file")
	s := l.snapshot(t, "s", id)
	other := l.start(t)
	for name, tt := range map[string]struct {
		src    Source
		delete func() error
	}{
		"snapshot": {Source{Snapshot: &s.ID}, func() error { return other.DeleteSnapshot(t.Context(), s.ID, nil) }},
		"volume":   {Source{Volume: &id}, func() error { return other.Delete(t.Context(), id, nil) }},
	} {
		l.step = func(ctx context.Context, step string) error {
			if step == "copy" {
				return errors.Join(ctx.Err(), tt.delete())
			}
			return ctx.Err()
		}
		if v, err := l.Create(t.Context(), l.from("new", tt.src)); err == nil {
			t.Errorf("%s: made %+v of a source that was deleted", name, v)
		}
	}
	other.reclaim.Wait()
	l.mustHave(t)
	l.mustHaveNoTemp(t)
}

func TestCopyToAFullExport(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	if err := os.WriteFile(filepath.Join(l.dir, "pvc-1/big"), bytes.Repeat([]byte("x"), 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	small, dir := volume.Export{Server: "small.test", Share: "/"}, t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("cannot mount a small tmpfs: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	l.fake.AddExport(small, dir)
	if _, err := l.CreateSnapshot(t.Context(), SnapshotRequest{Name: "s", Source: id, Export: &small}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("snapshot: %v, want ENOSPC", err)
	}
	req := l.from("clone", Source{Volume: &id})
	req.Params.Export = small
	if _, err := l.Create(t.Context(), req); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("clone: %v, want ENOSPC", err)
	}
	if _, err := l.GetSnapshot(t.Context(), volume.SnapshotID{Export: small, Name: "s", Source: "pvc-1"}, nil); !errors.Is(err, volume.ErrSnapshotNotFound) {
		t.Errorf("the snapshot: %v", err)
	}
	on := *l
	on.dir = dir
	on.mustHave(t)
	on.mustHaveNoTemp(t)
}

// Three controllers that make the same volumes and snapshots at the same time end each
// other's copies, and say so. Each gets what one of them has made.
func TestTwoControllersCopy(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.put(t, "pvc-1/file")
	stores := []*Store{l.Store, l.start(t), l.start(t)}
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	until := func(what string, call func() error) {
		err := call()
		for errors.Is(err, volume.ErrInProgress) && ctx.Err() == nil {
			err = call()
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for round := range 15 {
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() {
				until(fmt.Sprintf("controller %d, clone %d", i, round), func() error {
					_, err := s.Create(ctx, l.from(fmt.Sprint("c", round), Source{Volume: &id}))
					return err
				})
			})
			wg.Go(func() {
				until(fmt.Sprintf("controller %d, snapshot %d", i, round), func() error {
					_, err := s.CreateSnapshot(ctx, l.snapshotReq(fmt.Sprint("s", round), id))
					return err
				})
			})
		}
		wg.Wait()
	}
	for _, s := range stores {
		s.reclaim.Wait()
	}
	want := append(live("pvc-1"), "pvc-1/file")
	for round := range 15 {
		want = slices.Concat(want, live(fmt.Sprint("c", round)), []string{fmt.Sprintf("c%d/file", round)}, snap(fmt.Sprint("s", round), "file"))
	}
	l.mustHave(t, want...)
	l.mustHaveNoTemp(t)
}

func TestListSnapshots(t *testing.T) {
	l := newLab(t)
	other := volume.Export{Server: "other.test", Share: "/x"}
	l.fake.AddExport(other, t.TempDir())
	one, two := l.create(t, "pvc-1"), l.create(t, "pvc-2")
	for i := range 4 {
		l.snapshot(t, fmt.Sprint("one-", i), one)
		if _, err := l.CreateSnapshot(t.Context(), SnapshotRequest{Name: fmt.Sprint("two-", i), Source: two, Export: &other}); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{0, 1, 3, 8, 9} {
		var names []string
		for token := ""; ; {
			page, next, err := l.ListSnapshots(t.Context(), inventory.SnapshotQuery{Max: size, Token: token})
			if err != nil || size > 0 && len(page) > size {
				t.Fatalf("page of %d, %v", len(page), err)
			}
			for _, s := range page {
				names = append(names, s.ID.Name)
			}
			if token = next; token == "" {
				break
			}
		}
		if want := "one-0 one-1 one-2 one-3 two-0 two-1 two-2 two-3"; strings.Join(names, " ") != want {
			t.Errorf("pages of %d: %s", size, names)
		}
	}
	// The source may be given by another form of its ID.
	two.OnDelete = ""
	if page, _, err := l.ListSnapshots(t.Context(), inventory.SnapshotQuery{Source: &two}); err != nil || len(page) != 4 || page[0].ID.Name != "two-0" {
		t.Errorf("by source: %v, %v", page, err)
	}
	for _, token := range []string{"x", "!!", "YQ"} {
		if _, _, err := l.ListSnapshots(t.Context(), inventory.SnapshotQuery{Token: token}); !errors.Is(err, volume.ErrToken) {
			t.Errorf("token %q: %v", token, err)
		}
	}
}
