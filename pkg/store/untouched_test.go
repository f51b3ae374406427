package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// What only looks at volumes makes nothing on their export, and works on one
// that is read-only: it may hold static volumes only, or those of a predecessor.
func TestLookingLeavesAnExportUntouched(t *testing.T) {
	l := newLab(t)
	if err := os.Mkdir(filepath.Join(l.dir, "static"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "static/file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"static", "static/file"}
	readOnly(t, l.dir)
	id, none := l.id("static"), l.id("none")
	snapshot := volume.SnapshotID{Export: l.export, Name: "s", Source: "static"}
	group := volume.GroupID{Export: l.export, Name: "g"}
	other := volume.Export{Server: "other.test", Share: "/x"}
	l.fake.AddExport(other, t.TempDir())
	clone := l.from("clone", Source{Volume: &id})
	clone.Params.Export = other
	for name, tt := range map[string]struct {
		call func() error
		want error
	}{
		"get":         {func() error { _, err := l.Get(t.Context(), id, nil); return err }, nil},
		"get none":    {func() error { _, err := l.Get(t.Context(), none, nil); return err }, volume.ErrNotFound},
		"exists":      {func() error { return l.Exists(t.Context(), id, nil) }, nil},
		"expand":      {func() error { _, err := l.Expand(t.Context(), id, SizeRange{Required: 1}, nil); return err }, nil},
		"expand none": {func() error { _, err := l.Expand(t.Context(), none, SizeRange{Required: 1}, nil); return err }, volume.ErrNotFound},
		"no change":   {func() error { return l.Modify(t.Context(), id, volume.Mutable{}, nil) }, nil},
		"modify none": {func() error { return l.Modify(t.Context(), none, volume.Mutable{OnDelete: "retain"}, nil) }, volume.ErrNotFound},
		// The one that needs a record says why there is none.
		"modify":       {func() error { return l.Modify(t.Context(), id, volume.Mutable{OnDelete: "retain"}, nil) }, unix.EROFS},
		"list":         {func() error { _, err := l.List(t.Context(), 0, ""); return err }, nil},
		"health":       {func() error { _, err := l.Health(t.Context(), id, nil); return err }, nil},
		"health none":  {func() error { _, err := l.Health(t.Context(), none, nil); return err }, volume.ErrNotFound},
		"list health":  {func() error { _, err := l.ListHealth(t.Context(), 0, ""); return err }, nil},
		"capacity":     {func() error { _, err := l.Capacity(t.Context(), l.export, nil); return err }, nil},
		"get snapshot": {func() error { _, err := l.GetSnapshot(t.Context(), snapshot, nil); return err }, volume.ErrSnapshotNotFound},
		"snapshots":    {func() error { _, _, err := l.ListSnapshots(t.Context(), inventory.SnapshotQuery{}); return err }, nil},
		"get group":    {func() error { _, err := l.GetGroup(t.Context(), group, nil, nil); return err }, volume.ErrSnapshotNotFound},
		"clone of it":  {func() error { _, err := l.Create(t.Context(), clone); return err }, nil},
	} {
		if err := tt.call(); !errors.Is(err, tt.want) || (err != nil) != (tt.want != nil) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	l.mustHave(t, want...)
}

// readOnly makes the export read-only, as the server's ro does.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
}
