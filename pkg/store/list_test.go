package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// addExport gives the lab a second server's export.
func (l *lab) addExport(t *testing.T, server string) volume.Export {
	t.Helper()
	e := volume.Export{Server: server, Share: "/export"}
	l.fake.AddExport(e, t.TempDir())
	return e
}

func (l *lab) createOn(t *testing.T, export volume.Export, name string) volume.ID {
	t.Helper()
	req := l.request(name)
	req.Params.Export = export
	return l.createAs(t, req)
}

func (l *lab) listAll(t *testing.T, limit int) []string {
	t.Helper()
	var all []string
	for token, pages := "", 0; ; pages++ {
		page, err := l.List(t.Context(), limit, token)
		if err != nil {
			t.Fatal(err)
		}
		if limit > 0 && len(page.Volumes) > limit || pages > 100 {
			t.Fatalf("page %d of %d volumes", pages, len(page.Volumes))
		}
		for _, v := range page.Volumes {
			all = append(all, v.ID.Export.Server+" "+v.ID.SubDir)
		}
		if token = page.Next; token == "" {
			return all
		}
	}
}

func TestList(t *testing.T) {
	l := newLab(t)
	if got := l.listAll(t, 0); len(got) != 0 {
		t.Errorf("before any was used: %q", got)
	}
	second := l.addExport(t, "second.test")
	var want []string
	for _, subDir := range []string{"a", "a-b", "n/a", "n/b/c", "n/b/d", "n-z", "z"} {
		l.createAs(t, l.classed("pvc-"+filepath.Base(subDir)+subDir[:1], subDir, ""))
		want = append(want, "nfs.test "+subDir)
	}
	for _, name := range []string{"x", "y"} {
		l.createOn(t, second, name)
		want = append(want, "second.test "+name)
	}
	l.put(t, "legacy/data")
	l.put(t, ".nfs-csi/volumes/broken/.record.json")
	for limit := range 12 {
		if got := l.listAll(t, limit); !slices.Equal(got, want) {
			t.Errorf("by %d: %q, want %q", limit, got, want)
		}
	}
}

// A token holds while volumes come and go, and in another process.
func TestListTokenIsStable(t *testing.T) {
	l := newLab(t)
	for i := range 6 {
		l.create(t, fmt.Sprintf("pvc-%d", i))
	}
	page, err := l.List(t.Context(), 3, "")
	if err != nil || len(page.Volumes) != 3 {
		t.Fatalf("%+v, %v", page, err)
	}
	for _, gone := range []string{"pvc-0", "pvc-2", "pvc-4"} {
		id := l.id(gone)
		l.delete(t, id)
	}
	for name, s := range map[string]*Store{"same process": l.Store, "another": l.start(t)} {
		s.inventory.Opened(session.Target{Key: session.Key{Export: l.export}})
		next, err := s.List(t.Context(), 0, page.Next)
		if err != nil || len(next.Volumes) != 2 || next.Volumes[0].ID.SubDir != "pvc-3" || next.Volumes[1].ID.SubDir != "pvc-5" {
			t.Errorf("%s: %+v, %v", name, next, err)
		}
	}
	for _, token := range []string{"x", "invalid-token", "MQ", tokenOf("e", "../x"), tokenOf("", "x")} {
		if _, err := l.List(t.Context(), 1, token); !errors.Is(err, volume.ErrToken) {
			t.Errorf("%q: %v, want ErrToken", token, err)
		}
		if _, err := l.ListHealth(t.Context(), 1, token); !errors.Is(err, volume.ErrToken) {
			t.Errorf("health %q: %v, want ErrToken", token, err)
		}
	}
}

// tokenOf is the token of a path on an export.
func tokenOf(export, path string) string {
	return base64.RawURLEncoding.EncodeToString([]byte("1\x00" + export + "\x00" + path))
}

func TestCapacity(t *testing.T) {
	l := newLab(t)
	if free, err := l.Capacity(t.Context(), l.export, nil); err != nil || free <= 0 {
		t.Errorf("free are %d, %v", free, err)
	}
	if _, err := l.Capacity(t.Context(), volume.Export{Server: "none.test", Share: "/e"}, nil); !errors.Is(err, volume.ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
}

func reasons(list []inventory.Condition) (out []string) {
	for _, c := range list {
		out = append(out, c.Reason)
	}
	return out
}

func TestHealth(t *testing.T) {
	l := newLab(t)
	for _, name := range []string{"good", "missing", "replaced", "broken"} {
		l.create(t, name)
	}
	l.put(t, "legacy/data")
	if err := errors.Join(os.Remove(filepath.Join(l.dir, "missing")), os.Remove(filepath.Join(l.dir, "replaced"))); err != nil {
		t.Fatal(err)
	}
	l.put(t, "replaced")
	l.put(t, recordOf("broken"))
	away := l.id("x")
	away.Export.Server = "away.test"
	unshared := l.id("x")
	unshared.Export.Share = "/none"
	for name, tt := range map[string]struct {
		id     volume.ID
		reason string
	}{
		"good":       {l.id("good"), ""},
		"legacy":     {l.id("legacy"), ""},
		"missing":    {l.id("missing"), "DirectoryMissing"},
		"replaced":   {l.id("replaced"), "DirectoryReplaced"},
		"broken":     {l.id("broken"), "RecordUnreadable"},
		"no server":  {away, "ServerUnreachable"},
		"not shared": {unshared, "ShareNotFound"},
	} {
		got, err := l.Health(t.Context(), tt.id, nil)
		if err != nil || fmt.Sprint(reasons(got)) != fmt.Sprintf("[%s]", tt.reason) {
			t.Errorf("%s: %+v, %v, want %s", name, got, err, tt.reason)
		}
	}
	if _, err := l.Health(t.Context(), l.id("none"), nil); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("none: %v, want ErrNotFound", err)
	}
	page, err := l.ListHealth(t.Context(), 0, "")
	if err != nil || len(page.Volumes) != 2 || page.Next != "" {
		t.Fatalf("list %+v, %v", page, err)
	}
	one, err := l.ListHealth(t.Context(), 1, "")
	if err != nil || len(one.Volumes) != 1 || one.Volumes[0].ID != page.Volumes[0].ID {
		t.Fatalf("first page %+v, %v", one, err)
	}
	two, err := l.ListHealth(t.Context(), 1, one.Next)
	if err != nil || len(two.Volumes) != 1 || two.Volumes[0].ID != page.Volumes[1].ID {
		t.Errorf("second page %+v, %v", two, err)
	}
}

// The health of volumes on a lost server is reported from memory, that of others as usual.
func TestHealthOfALostServer(t *testing.T) {
	l := newLab(t)
	l.create(t, "good")
	lost := l.addExport(t, "lost.test")
	var ids []volume.ID
	for _, name := range []string{"a", "b"} {
		ids = append(ids, l.createOn(t, lost, name))
	}
	l.fake = nfsmounttest.NewFake() // one that does not know that server
	l.fake.AddExport(l.export, l.dir)
	l.Store = l.start(t)
	for _, export := range []volume.Export{l.export, lost} {
		l.inventory.Opened(session.Target{Key: session.Key{Export: export}})
	}
	for _, id := range ids {
		l.inventory.Saw(id.SubDir, id)
	}
	page, err := l.ListHealth(t.Context(), 0, "")
	if err != nil || len(page.Volumes) != 2 || page.Volumes[1].ID != "lost.test#export#b##delete" || page.Volumes[1].Conditions[0].Severity != inventory.Inaccessible {
		t.Errorf("%+v, %v", page, err)
	}
	if _, err := l.List(t.Context(), 0, ""); err == nil {
		t.Error("a list without the volumes of a server that is down looks as if they were gone")
	}
}

// A server that hangs costs one probe, and the caller its time at most.
func TestHealthOfAHangingServer(t *testing.T) {
	l := newLab(t)
	release := l.fake.Hang("nfs.test")
	defer release()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := l.Health(ctx, l.id("x"), nil); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, volume.ErrUnreachable) {
			t.Errorf("got %v", err)
		}
		cancel()
	}
}

// A process that has just come up lists what it was told to.
func TestListConfiguredExports(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.snapshot(t, "s", id)
	shares, err := share.New(t.Context(), share.Config{Mounter: l.fake, Dir: t.TempDir(), IdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for want, exports := range [][]volume.Export{{}, {l.export}} {
		s, err := New(t.Context(), Config{Shares: shares, ReclaimWorkers: 1, CopyWorkers: 1, Exports: exports})
		if err != nil {
			t.Fatal(err)
		}
		if page, err := s.List(t.Context(), 0, ""); err != nil || len(page.Volumes) != want {
			t.Errorf("of %v: %v, %v", exports, page, err)
		}
		if page, _, err := s.ListSnapshots(t.Context(), inventory.SnapshotQuery{}); err != nil || len(page) != want {
			t.Errorf("snapshots of %v: %v, %v", exports, page, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := shares.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
