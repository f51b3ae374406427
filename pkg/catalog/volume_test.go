package catalog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// What may be in the way of a new record's directory.
func TestCreateOverWhatIsThere(t *testing.T) {
	tests := map[string]struct {
		put  func(t *testing.T, cat *Catalog, dir string) // dir is volumes/pvc
		want error
	}{
		"nothing":                  {func(*testing.T, *Catalog, string) {}, nil},
		"an empty directory":       {func(t *testing.T, _ *Catalog, dir string) { mkdirAll(t, dir) }, nil},
		"directories left over":    {func(t *testing.T, _ *Catalog, dir string) { mkdirAll(t, filepath.Join(dir, "a", "b")) }, nil},
		"a record":                 {func(t *testing.T, cat *Catalog, _ string) { mustCreate(t, cat, "pvc") }, fs.ErrExist},
		"a volume below":           {func(t *testing.T, cat *Catalog, _ string) { mustCreate(t, cat, "pvc/a/b") }, volume.ErrOwned},
		"a symlink to a directory": {func(t *testing.T, _ *Catalog, dir string) { symlink(t, t.TempDir(), dir) }, unix.ENOTDIR},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cat, export := open(t)
			volumes := filepath.Join(export, volume.MetaDir, volumesDir)
			mkdirAll(t, volumes)
			tt.put(t, cat, filepath.Join(volumes, "pvc"))
			if err := cat.Create(record("pvc")); !errors.Is(err, tt.want) || (err != nil) != (tt.want != nil) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			_, err := cat.Read("pvc")
			if is, want := err == nil, tt.want == nil || errors.Is(tt.want, fs.ErrExist); is != want {
				t.Errorf("read after it: %v, want a record %v", err, want)
			}
			mustBeEmpty(t, filepath.Join(export, volume.MetaDir, TempDir))
		})
	}
}

// An NFS server answers a retransmitted rename with ENOENT.
func TestCreateWhoseReplyWasLost(t *testing.T) {
	cat, _ := open(t)
	r := record("pvc")
	mustCreate(t, cat, "pvc")
	b, err := encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.rename(&Draft{record: r, name: "renamed-away", bytes: b}); err != nil {
		t.Errorf("its own record: %v", err)
	}
	if err := cat.rename(&Draft{record: r, name: "renamed-away", bytes: append(b, ' ')}); !errors.Is(err, unix.ESTALE) {
		t.Errorf("the record of another: %v, want ESTALE", err)
	}
}

func TestDraft(t *testing.T) {
	cat, export := open(t)
	tmp := filepath.Join(export, volume.MetaDir, TempDir)
	draft := func(name string) *Draft {
		r := record("pvc")
		r.Name = name
		d, err := cat.Draft(r)
		must(t, err)
		return d
	}
	dropped, first, second := draft("dropped"), draft("first"), draft("second")
	if _, err := cat.Read("pvc"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read before it is published: %v", err)
	}
	must(t, cat.Drop(dropped))
	must(t, cat.Publish(first))
	if err := cat.Publish(second); !errors.Is(err, fs.ErrExist) {
		t.Errorf("publish the second: %v, want that there is one", err)
	}
	if r, err := cat.Read("pvc"); err != nil || r.Name != "first" {
		t.Errorf("the record is that of %q, %v", r.Name, err)
	}
	mustBeEmpty(t, tmp)
}

func TestCheck(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, meta string){
		"gone":     func(t *testing.T, meta string) { must(t, os.RemoveAll(meta)) },
		"replaced": func(t *testing.T, meta string) { must(t, os.Rename(meta, meta+".old")); mkdirAll(t, meta) },
	} {
		cat, export := open(t)
		must(t, cat.Check())
		change(t, filepath.Join(export, volume.MetaDir))
		if err := cat.Check(); !errors.Is(err, ErrReplaced) || !errors.Is(err, unix.ESTALE) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func mustCreate(t *testing.T, cat *Catalog, subDir string) {
	t.Helper()
	must(t, cat.Create(record(subDir)))
}

func mkdirAll(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
}

func symlink(t *testing.T, to, name string) {
	t.Helper()
	must(t, os.Symlink(to, name))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A record created inside a live volume does not stay: the check of that volume's
// creator may have come before.
func TestCreateWithinAVolume(t *testing.T) {
	cat, export := open(t)
	mustCreate(t, cat, "pvc")
	for _, subDir := range []string{"pvc/a", "pvc/a/b"} {
		if err := cat.Create(record(subDir)); !errors.Is(err, volume.ErrOwned) {
			t.Errorf("%s: %v, want ErrOwned", subDir, err)
		}
	}
	if below, err := cat.Below("pvc"); err != nil || len(below) != 0 {
		t.Errorf("left are %q, %v", below, err)
	}
	if _, err := cat.Read("pvc"); err != nil {
		t.Errorf("the volume's own record: %v", err)
	}
	mustBeEmpty(t, filepath.Join(export, volume.MetaDir, TempDir))
}
