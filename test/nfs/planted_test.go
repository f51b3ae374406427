package nfs

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Whoever can write into the driver's own directory on the server, as the user
// that all_squash makes of everybody, still leads the driver nowhere else.
func TestSymlinksInTheDriversDirectory(t *testing.T) {
	e, dir := export(t, "LAB_EXPORT_XFS", "rw,no_root_squash", 0o777)
	c := newCanaries(t, e, dir)
	c.remember(t)
	meta := filepath.Join(dir, ".nfs-csi")
	for i, place := range []string{
		"volumes", "names", "tmp", "trash", "snapshots", "groups", "volumes/pvc", "volumes/pvc/.record.json", "names/other",
		"snapshots/snap", "snapshots/snap/data", "snapshots/snap/record.json", "groups/group/1", "groups/group/1/data", "trash/gone/below", "trash/gone",
		"tmp/copy.volume.0123456789abcdef-1700000000000000000-X", "tmp/deleted0123456789abcdef-1700000000000000000-X.pvc",
	} {
		links := map[string]string{"absolute": filepath.Join(c.outer, "above"), "relative": relativeLink(t, filepath.Join(meta, place), filepath.Join(dir, "kept/canary"))}
		for kind, link := range links {
			if !strings.HasSuffix(place, "data") && (kind == "absolute") != (i%2 == 0) {
				continue // one of the two, but for what is copied
			}
			t.Run(place+" "+kind, func(t *testing.T) {
				plantedOnce(t, c, place, link)
				c.check(t)
			})
		}
	}
}

// relativeLink is what a symlink says that leads from its directory to a target.
func relativeLink(t *testing.T, name, target string) string {
	t.Helper()
	link, err := filepath.Rel(filepath.Dir(name), target)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// plantedOnce makes all calls with a symlink in a place of the driver's own directory.
func plantedOnce(t *testing.T, c *canaries, place, link string) {
	t.Helper()
	meta := filepath.Join(c.dir, ".nfs-csi")
	calls := plantedCalls{t, newStore(t, "vers=4.2"), c.export, volume.ID{Export: c.export, SubDir: "pvc", Name: "pvc"}}
	calls.make(t.Context())
	plantLink(t, filepath.Join(meta, place), link)
	if _, err := os.Stat(filepath.Join(meta, place, "secret")); err != nil {
		t.Fatalf("the symlink leads nowhere: %v", err)
	}
	within(t, 10*time.Second, "all calls", func() { calls.all(t.Context()) })
	if strings.HasPrefix(place, "trash/") {
		eventually(t, 10*time.Second, place+" is removed", func() error {
			_, err := os.Lstat(filepath.Join(meta, place))
			if err == nil {
				return errors.New("it is there")
			}
			return nil
		})
	}
	for _, made := range []string{"pvc", "other-dir", "clone", "restored", ".nfs-csi"} {
		if err := os.RemoveAll(filepath.Join(c.dir, made)); err != nil {
			t.Fatal(err)
		}
	}
}

// plantLink puts a symlink in the place of what is there.
func plantLink(t *testing.T, name, target string) {
	t.Helper()
	err := errors.Join(os.RemoveAll(name), os.MkdirAll(filepath.Dir(name), 0o700), os.Symlink(target, name))
	if err != nil {
		t.Fatal(err)
	}
}

// plantedCalls are those that go into the driver's own directory. They may fail.
type plantedCalls struct {
	t      *testing.T
	store  *store.Store
	export volume.Export
	id     volume.ID
}

func (p plantedCalls) create(ctx context.Context, name, subDir string, src *store.Source) error {
	req := request(p.export, name, "vers=4.2", src)
	req.Params.SubDir = subDir
	_, err := p.store.Create(ctx, req)
	return err
}

func (p plantedCalls) snapshot(ctx context.Context) error {
	_, err := p.store.CreateSnapshot(ctx, store.SnapshotRequest{Name: "snap", Source: p.id})
	return err
}

func (p plantedCalls) group(ctx context.Context) error {
	_, err := p.store.CreateGroup(ctx, groupReq("group", store.Created{ID: p.id}))
	return err
}

func (p plantedCalls) make(ctx context.Context) {
	p.t.Helper()
	err := errors.Join(p.create(ctx, "pvc", "", nil), p.create(ctx, "other", "other-dir", nil), p.snapshot(ctx), p.group(ctx))
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p plantedCalls) all(ctx context.Context) {
	snap := volume.SnapshotID{Export: p.export, Name: "snap", Source: "pvc"}
	member := volume.SnapshotID{Export: p.export, Name: "1", Group: "group", Source: "pvc"}
	for what, err := range map[string]error{
		"create": p.create(ctx, "pvc", "", nil), "create other": p.create(ctx, "other", "other-dir", nil),
		"snapshot": p.snapshot(ctx), "group": p.group(ctx),
		"clone":   p.create(ctx, "clone", "", &store.Source{Volume: &p.id}),
		"restore": p.create(ctx, "restored", "", &store.Source{Snapshot: &snap}),
		"restore member": errors.Join(p.store.Delete(ctx, volume.ID{Export: p.export, SubDir: "restored", Name: "restored"}, nil),
			p.create(ctx, "restored", "", &store.Source{Snapshot: &member})),
	} {
		if err != nil {
			p.t.Logf("%s: %v", what, err)
		}
	}
	// What was not to be had must not have been made of anything else.
	for _, name := range []string{"clone", "restored"} {
		if _, err := os.Lstat(filepath.Join(p.export.Share, name, "secret")); !errors.Is(err, os.ErrNotExist) {
			p.t.Errorf("%s has what a symlink led to: %v", name, err)
		}
	}
	for what, err := range map[string]error{
		"delete snapshot": p.store.DeleteSnapshot(ctx, snap, nil),
		"delete group":    p.store.DeleteGroup(ctx, volume.GroupID{Export: p.export, Name: "group"}, nil, nil),
		"delete":          p.store.Delete(ctx, p.id, nil),
		"delete other":    p.store.Delete(ctx, volume.ID{Export: p.export, SubDir: "other-dir", Name: "other"}, nil),
	} {
		if err != nil {
			p.t.Logf("%s: %v", what, err)
		}
	}
	if _, err := p.store.List(ctx, 0, ""); err != nil {
		p.t.Logf("list: %v", err)
	}
}

// An archive that somebody has written into the share, in the place of one of
// csi-driver-nfs, is unpacked within the new volume or not at all.
func TestHostileArchives(t *testing.T) {
	for version, disk := range clientVersions() {
		t.Run(version, func(t *testing.T) {
			e, dir := export(t, disk, "rw,no_root_squash", 0o777)
			c := newCanaries(t, e, dir)
			up, outer := "../kept/canary", filepath.Join(c.outer, "above")
			for name, tt := range map[string]struct {
				refused bool
				members []tar.Header
			}{
				"absolute":          {true, []tar.Header{{Typeflag: tar.TypeReg, Name: outer + "/secret"}}},
				"dots":              {true, []tar.Header{{Typeflag: tar.TypeReg, Name: "a/../../kept/canary/secret"}}},
				"through-a-symlink": {true, []tar.Header{{Typeflag: tar.TypeSymlink, Name: "l", Linkname: up}, {Typeflag: tar.TypeReg, Name: "l/secret"}}},
				"through-absolute":  {true, []tar.Header{{Typeflag: tar.TypeSymlink, Name: "l", Linkname: outer}, {Typeflag: tar.TypeReg, Name: "l/new"}}},
				"chmod-a-symlink":   {true, []tar.Header{{Typeflag: tar.TypeSymlink, Name: "l", Linkname: up}, {Typeflag: tar.TypeDir, Name: "l", Mode: 0o777}}},
				"hard-link-out":     {true, []tar.Header{{Typeflag: tar.TypeLink, Name: "h", Linkname: up + "/secret"}}},
				"hard-link-via":     {true, []tar.Header{{Typeflag: tar.TypeSymlink, Name: "l", Linkname: up}, {Typeflag: tar.TypeLink, Name: "h", Linkname: "l/secret"}}},
				"over-a-symlink":    {false, []tar.Header{{Typeflag: tar.TypeSymlink, Name: "l", Linkname: up + "/secret"}, {Typeflag: tar.TypeReg, Name: "l"}}},
				"device":            {false, []tar.Header{{Typeflag: tar.TypeChar, Name: "d", Devmajor: 1, Devminor: 3, Mode: 0o666}, {Typeflag: tar.TypeBlock, Name: "b", Devmajor: 8}}},
				"fifo":              {false, []tar.Header{{Typeflag: tar.TypeFifo, Name: "f", Mode: 0o622}, {Typeflag: tar.TypeReg, Name: "f"}}},
			} {
				name = "tar-" + name
				mkdir(t, filepath.Join(dir, name))
				packTo(t, filepath.Join(dir, name, "source.tar"), tt.members)
				c.remember(t)
				s := newStore(t, version)
				src := store.Source{Snapshot: &volume.SnapshotID{Export: e, Name: name, Source: "source"}}
				made, err := s.Create(t.Context(), request(e, "restored", version, &src))
				if refused := err != nil; refused != tt.refused {
					t.Errorf("%s: %v", name, err)
				}
				for _, device := range []string{"d", "b"} {
					if _, err := os.Lstat(filepath.Join(dir, "restored", device)); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("%s: a device: %v", name, err)
					}
				}
				if err == nil {
					if err := s.Delete(t.Context(), made.ID, nil); err != nil {
						t.Error(err)
					}
				}
				c.check(t)
			}
		})
	}
}

func packTo(t *testing.T, name string, members []tar.Header) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range members {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(name, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}
