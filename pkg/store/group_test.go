package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func groupReq(name string, sources ...volume.ID) GroupRequest {
	req := GroupRequest{Name: name}
	for _, id := range sources {
		req.Sources = append(req.Sources, Handle{ID: id, Text: id.String()})
	}
	return req
}

func (l *lab) group(t *testing.T, name string, sources ...volume.ID) Group {
	t.Helper()
	g, err := l.CreateGroup(t.Context(), groupReq(name, sources...))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// grouped is a group on the server, of members with these files each.
func grouped(name string, members ...[]string) []string {
	base := ".nfs-csi/groups/" + name
	out := []string{base, base + "/record.json"}
	for i, files := range members {
		dir := fmt.Sprintf("%s/%d", base, i+1)
		out = append(out, dir, dir+"/record.json", dir+"/data")
		for _, f := range files {
			out = append(out, dir+"/data/"+f)
		}
	}
	return out
}

func TestGroup(t *testing.T) {
	l := newLab(t)
	one, two := l.create(t, "pvc-1"), l.create(t, "pvc-2")
	l.put(t, "pvc-1/a")
	l.put(t, "pvc-2/b")
	g := l.group(t, "g", two, one)
	if g.ID.String() != "nfs.test#export#g###group" || len(g.Members) != 2 || g.Created.IsZero() {
		t.Fatalf("made %+v", g)
	}
	if m := g.Members[1]; m.ID.String() != "nfs.test#export#g#2#pvc-2#group" || m.SourceID != two.String() || m.Bytes != int64(len("pvc-2/b")) || m.Created != g.Created {
		t.Errorf("member %+v", m)
	}
	l.put(t, "pvc-1/later")
	if again := l.group(t, "g", one, two); !slices.Equal(again.Members, g.Members) {
		t.Errorf("again, in another order: %+v, want the same %+v", again, g)
	}
	got, err := l.GetGroup(t.Context(), g.ID, []string{g.Members[1].ID.String(), g.Members[0].ID.String()}, nil)
	if err != nil || !slices.Equal(got.Members, g.Members) {
		t.Errorf("got %+v, %v", got, err)
	}
	if m, err := l.GetSnapshot(t.Context(), g.Members[0].ID, nil); err != nil || m != g.Members[0] {
		t.Errorf("member alone: %+v, %v", m, err)
	}
	if _, err := l.Create(t.Context(), l.from("pvc-3", Source{Snapshot: &g.Members[1].ID})); err != nil {
		t.Error(err)
	}
	if err := l.DeleteSnapshot(t.Context(), g.Members[0].ID, nil); !errors.Is(err, volume.ErrInGroup) {
		t.Errorf("delete of a member: %v, want ErrInGroup", err)
	}
	for _, others := range [][]string{{g.Members[0].ID.String()}, {"x", "y"}} {
		if err := l.DeleteGroup(t.Context(), g.ID, others, nil); !errors.Is(err, volume.ErrInvalid) {
			t.Errorf("delete with the members %q: %v", others, err)
		}
	}
	volumes := slices.Concat(live("pvc-1"), live("pvc-2"), live("pvc-3"), []string{"pvc-1/a", "pvc-1/later", "pvc-2/b", "pvc-3/b"})
	l.mustHave(t, slices.Concat(volumes, grouped("g", []string{"a"}, []string{"b"}))...)
	for range 2 {
		if err := l.DeleteGroup(t.Context(), g.ID, nil, nil); err != nil {
			t.Error(err)
		}
	}
	if err := l.DeleteSnapshot(t.Context(), g.Members[0].ID, nil); err != nil {
		t.Errorf("delete of a member that is gone: %v", err)
	}
	if _, err := l.GetGroup(t.Context(), g.ID, nil, nil); !errors.Is(err, volume.ErrSnapshotNotFound) {
		t.Errorf("deleted and got with %v", err)
	}
	if _, err := l.GetSnapshot(t.Context(), g.Members[0].ID, nil); !errors.Is(err, volume.ErrSnapshotNotFound) {
		t.Errorf("member deleted and got with %v", err)
	}
	l.mustHave(t, volumes...)
	l.mustHaveNoTemp(t)
}

func TestGroupOfSeveralServers(t *testing.T) {
	l := newLab(t)
	far, farDir := volume.Export{Server: "far.test", Share: "/"}, t.TempDir()
	third, thirdDir := volume.Export{Server: "third.test", Share: "/x"}, t.TempDir()
	l.fake.AddExport(far, farDir)
	l.fake.AddExport(third, thirdDir)
	here := l.create(t, "pvc-1")
	l.put(t, "pvc-1/here")
	there := l.createOn(t, far, "pvc-2")
	if err := os.WriteFile(filepath.Join(farDir, "pvc-2/there"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	// On the export of the first source by ID, whatever their order.
	for _, order := range [][]volume.ID{{here, there}, {there, here}} {
		if g := l.group(t, "g", order...); g.ID.Export != far {
			t.Errorf("group on %s", g.ID.Export)
		}
	}
	for _, p := range []string{"1/data/there", "2/data/here"} {
		if _, err := os.Stat(filepath.Join(farDir, ".nfs-csi/groups/g", p)); err != nil {
			t.Error(err)
		}
	}
	elsewhere := groupReq("g", here, there)
	elsewhere.Export = &third
	g, err := l.CreateGroup(t.Context(), elsewhere)
	if err != nil || g.ID.Export != third || g.Members[0].ID.Export != third {
		t.Fatalf("group of the class's export %+v, %v", g, err)
	}
	if _, err := l.Create(t.Context(), l.from("back", Source{Snapshot: &g.Members[0].ID})); err != nil {
		t.Error(err)
	}
	l.mustHave(t, slices.Concat(live("pvc-1"), live("back"), []string{"pvc-1/here", "back/there"})...)
}

func TestGroupRefuses(t *testing.T) {
	l := newLab(t)
	one, two := l.create(t, "pvc-1"), l.create(t, "pvc-2")
	l.group(t, "g", one)
	for name, tt := range map[string]struct {
		req  GroupRequest
		want error
	}{
		"no sources":    {groupReq("n"), volume.ErrInvalid},
		"twice":         {groupReq("n", one, two, one), volume.ErrInvalid},
		"not there":     {groupReq("n", one, l.id("none")), volume.ErrNotFound},
		"no name":       {groupReq("", one), volume.ErrInvalid},
		"other sources": {groupReq("g", one, two), volume.ErrSnapshotDiffers},
		"another":       {groupReq("g", two), volume.ErrSnapshotDiffers},
	} {
		if g, err := l.CreateGroup(t.Context(), tt.req); !errors.Is(err, tt.want) {
			t.Errorf("%s: %+v, %v, want %v", name, g, err, tt.want)
		}
	}
	l.mustHave(t, slices.Concat(live("pvc-1"), live("pvc-2"), grouped("g", nil))...)
	l.mustHaveNoTemp(t)
}

// Whatever step the process is killed at, there is all of the group or nothing,
// and the same call completes exactly once.
func TestKilledGroupsAreCompleted(t *testing.T) {
	whole := grouped("g", []string{"a", "a/b"}, nil, []string{"c"})
	for name, call := range map[string]func(context.Context, *Store, []volume.ID) error{
		"create": func(ctx context.Context, s *Store, ids []volume.ID) error {
			_, err := s.CreateGroup(ctx, groupReq("g", ids...))
			return err
		},
		"delete": func(ctx context.Context, s *Store, ids []volume.ID) error {
			return s.DeleteGroup(ctx, volume.GroupID{Export: ids[0].Export, Name: "g"}, nil, nil)
		},
	} {
		for n := 1; ; n++ {
			l := newLab(t)
			ids := []volume.ID{l.create(t, "pvc-1"), l.create(t, "pvc-2"), l.create(t, "pvc-3")}
			l.put(t, "pvc-1/a/b")
			l.put(t, "pvc-3/c")
			if name == "delete" {
				l.group(t, "g", ids...)
			}
			ctx, killed := l.killAt(t.Context(), l.Store, n)
			err := call(ctx, l.Store, ids)
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
			switch _, err := l.GetGroup(t.Context(), volume.GroupID{Export: l.export, Name: "g"}, nil, nil); {
			case err == nil:
				l.mustHaveAmong(t, whole)
			case errors.Is(err, volume.ErrSnapshotNotFound):
				if list, _, err := l.ListSnapshots(t.Context(), inventory.SnapshotQuery{}); err != nil || len(list) != 0 {
					t.Errorf("%s: killed at step %d: no group and the members %v, %v", name, n, list, err)
				}
			default:
				t.Errorf("%s: killed at step %d: %v", name, n, err)
			}
			if err := call(t.Context(), l.Store, ids); err != nil {
				t.Errorf("%s: after being killed at step %d: %v", name, n, err)
			}
			want := slices.Concat(live("pvc-1"), live("pvc-2"), live("pvc-3"), []string{"pvc-1/a", "pvc-1/a/b", "pvc-3/c"})
			if name == "create" {
				want = append(want, whole...)
			}
			l.mustHave(t, want...)
			l.mustHaveNoTemp(t)
		}
	}
}

func (l *lab) mustHaveAmong(t *testing.T, want []string) {
	t.Helper()
	for _, p := range want {
		if _, err := os.Lstat(filepath.Join(l.dir, p)); err != nil {
			t.Error(err)
		}
	}
}

// Another controller that begins the same group takes this one's half of it: it
// must not come back without what it had.
func TestTwoControllersMakeOneGroup(t *testing.T) {
	l := newLab(t)
	ids := []volume.ID{l.create(t, "pvc-1"), l.create(t, "pvc-2")}
	l.put(t, "pvc-1/a")
	l.put(t, "pvc-2/b")
	other := l.start(t)
	members := 0
	l.step = func(ctx context.Context, step string) error {
		if step == "copy member" {
			if members++; members == 2 {
				if _, err := other.CreateGroup(ctx, groupReq("g", ids...)); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	}
	if _, err := l.CreateGroup(t.Context(), groupReq("g", ids...)); !errors.Is(err, volume.ErrInProgress) {
		t.Errorf("the slower one: %v, want ErrInProgress", err)
	}
	l.step = func(ctx context.Context, _ string) error { return ctx.Err() }
	if g := l.group(t, "g", ids...); len(g.Members) != 2 {
		t.Errorf("found %+v", g)
	}
	other.reclaim.Wait()
	l.mustHave(t, slices.Concat(live("pvc-1"), live("pvc-2"), []string{"pvc-1/a", "pvc-2/b"}, grouped("g", []string{"a"}, []string{"b"}))...)
	l.mustHaveNoTemp(t)
}

func TestGroupInUse(t *testing.T) {
	l := newLab(t)
	one, two := l.create(t, "pvc-1"), l.create(t, "pvc-2")
	g := l.group(t, "g", one, two)
	blocked, release := l.blockAt("move copy into place")
	made := make(chan error, 1)
	go func() {
		_, err := l.Create(t.Context(), l.from("new", Source{Snapshot: &g.Members[1].ID}))
		made <- err
	}()
	<-blocked
	if err := l.DeleteGroup(t.Context(), g.ID, nil, nil); !errors.Is(err, volume.ErrInUse) {
		t.Errorf("delete while a member is restored: %v, want ErrInUse", err)
	}
	release()
	if err := <-made; err != nil {
		t.Error(err)
	}
	blocked, _ = l.blockAt("move group into place")
	go func() {
		_, err := l.CreateGroup(t.Context(), groupReq("h", one, two))
		made <- err
	}()
	<-blocked
	if err := l.Delete(t.Context(), two, nil); !errors.Is(err, volume.ErrInUse) {
		t.Errorf("delete of a source: %v, want ErrInUse", err)
	}
	if err := l.DeleteGroup(t.Context(), volume.GroupID{Export: l.export, Name: "h"}, nil, nil); err != nil {
		t.Error(err)
	}
	if err := <-made; !errors.Is(err, copyjob.ErrDeleted) {
		t.Errorf("the creator of a deleted group got %v", err)
	}
	l.mustHave(t, slices.Concat(live("pvc-1"), live("pvc-2"), live("new"), grouped("g", nil, nil))...)
	l.mustHaveNoTemp(t)
}

func TestGroupProgress(t *testing.T) {
	l := newLab(t)
	one, two := l.create(t, "pvc-1"), l.create(t, "pvc-2")
	l.put(t, "pvc-2/file")
	ctx, cancel := context.WithCancel(t.Context())
	blocked, release := l.blockAt("move group into place")
	go func() { <-blocked; cancel() }()
	_, err := l.CreateGroup(ctx, groupReq("g", one, two))
	if !errors.Is(err, volume.ErrInProgress) || !strings.Contains(err.Error(), "copying 2 of 2: 10 B, 1 files") {
		t.Errorf("got %v, want ErrInProgress with the progress", err)
	}
	if _, err := l.CreateGroup(t.Context(), groupReq("g", one)); err == nil || !strings.Contains(err.Error(), "being made") {
		t.Errorf("of other sources meanwhile: %v", err)
	}
	release()
	l.group(t, "g", one, two)
}

func TestListSnapshotsOfGroups(t *testing.T) {
	l := newLab(t)
	one, two := l.create(t, "pvc-1"), l.create(t, "pvc-2")
	for _, name := range []string{"a", "a!", "a-b"} {
		l.group(t, name, one, two)
		l.snapshot(t, name, one)
	}
	want := "a/1 a/2 a!/1 a!/2 a-b/1 a-b/2 a a! a-b"
	for _, size := range []int{0, 1, 2, 3, 8, 9} {
		var names []string
		for token := ""; ; {
			page, next, err := l.ListSnapshots(t.Context(), inventory.SnapshotQuery{Max: size, Token: token})
			if err != nil || size > 0 && len(page) > size {
				t.Fatalf("page of %d, %v", len(page), err)
			}
			for _, s := range page {
				names = append(names, strings.TrimPrefix(s.ID.Group+"/"+s.ID.Name, "/"))
			}
			if token = next; token == "" {
				break
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("pages of %d: %s", size, got)
		}
	}
	page, _, err := l.ListSnapshots(t.Context(), inventory.SnapshotQuery{Source: &two})
	if err != nil || len(page) != 3 || page[0].ID.GroupID() == nil {
		t.Errorf("by source: %v, %v", page, err)
	}
}

// NFS cannot hold writers up: what they did meanwhile fails the group.
func TestGroupOfVolumesWrittenTo(t *testing.T) {
	for name, change := range map[string]func(*lab) error{
		"new file": func(l *lab) error { return os.WriteFile(filepath.Join(l.dir, "pvc-1/new"), nil, 0o600) },
		"written":  func(l *lab) error { return os.WriteFile(filepath.Join(l.dir, "pvc-1/a"), []byte("b"), 0o600) },
		"gone":     func(l *lab) error { return os.Remove(filepath.Join(l.dir, "pvc-1/a")) },
	} {
		l := newLab(t)
		one, two := l.create(t, "pvc-1"), l.create(t, "pvc-2")
		l.put(t, "pvc-1/a")
		members := 0
		l.step = func(ctx context.Context, step string) error {
			if step == "copy member" {
				if members++; members%2 == 0 { // pvc-1 is copied
					return errors.Join(ctx.Err(), change(l))
				}
			}
			return ctx.Err()
		}
		if g, err := l.CreateGroup(t.Context(), groupReq("g", one, two)); !errors.Is(err, volume.ErrWritten) {
			t.Errorf("%s: %+v, %v, want ErrWritten", name, g, err)
		}
		l.put(t, "pvc-1/a")
		if _, err := l.GetGroup(t.Context(), volume.GroupID{Export: l.export, Name: "g"}, nil, nil); !errors.Is(err, volume.ErrSnapshotNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		l.mustHaveNoTemp(t)
		req := groupReq("g", one, two)
		req.AllowWrites = true
		if _, err := l.CreateGroup(t.Context(), req); err != nil {
			t.Errorf("%s, allowed: %v", name, err)
		}
	}
}

// A group that somebody took a member out of is not shown as whole.
func TestGroupWithoutAMember(t *testing.T) {
	l := newLab(t)
	g := l.group(t, "g", l.create(t, "pvc-1"), l.create(t, "pvc-2"))
	if err := os.RemoveAll(filepath.Join(l.dir, ".nfs-csi/groups/g/2")); err != nil {
		t.Fatal(err)
	}
	if got, err := l.GetGroup(t.Context(), g.ID, nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := l.DeleteGroup(t.Context(), g.ID, nil, nil); err != nil {
		t.Error(err)
	}
}
