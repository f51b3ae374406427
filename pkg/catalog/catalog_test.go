package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func open(t *testing.T) (cat *Catalog, export string) {
	t.Helper()
	export = t.TempDir()
	root, err := os.OpenRoot(export)
	if err != nil {
		t.Fatal(err)
	}
	cat, err = Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cat.Close(); root.Close() })
	return cat, export
}

func record(subDir string) Record {
	return Record{Name: "name of " + subDir, ID: "s#e#" + subDir, SubDir: subDir, Capacity: 1, Created: time.Unix(1, 0).UTC()}
}

func TestRecordLife(t *testing.T) {
	for _, subDir := range []string{"pvc-1", "team/claim"} {
		cat, export := open(t)
		if _, err := cat.Read(subDir); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("before: %v", err)
		}
		r := record(subDir)
		if err := cat.Create(r); err != nil {
			t.Fatal(err)
		}
		if err := cat.Create(r); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a second record: %v, want ErrExist", err)
		}
		r.Capacity = 2
		if err := cat.Replace(r); err != nil {
			t.Fatal(err)
		}
		got, err := cat.Read(subDir)
		if err != nil || got.Capacity != 2 || got.Name != r.Name || got.Version != recordVersion || !got.Created.Equal(r.Created) {
			t.Errorf("read %+v, %v", got, err)
		}
		for range 2 {
			if err := cat.Remove(record(subDir)); err != nil {
				t.Fatal(err)
			}
		}
		mustBeEmpty(t, filepath.Join(export, volume.MetaDir, volumesDir))
		mustBeEmpty(t, filepath.Join(export, volume.MetaDir, TempDir))
	}
}

func TestPermissions(t *testing.T) {
	cat, export := open(t)
	if err := cat.Create(record("pvc-1")); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(filepath.Join(export, volume.MetaDir), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s, others can see it", p, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneWinner(t *testing.T) {
	cat, _ := open(t)
	for round := range 20 {
		var won atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				r := record(fmt.Sprintf("pvc-%d", round))
				r.Name = fmt.Sprint(i)
				switch err := cat.Create(r); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, fs.ErrExist):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d creators won", won.Load())
		}
	}
}

// Create makes its directory again when another volume's Remove prunes it.
func TestCreateAgainstPrune(t *testing.T) {
	cat, _ := open(t)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		wg.Go(func() {
			for range 200 {
				subDir := "team/" + name
				if err := cat.Create(record(subDir)); err != nil {
					t.Error(err)
					return
				}
				if _, err := cat.Read(subDir); err != nil {
					t.Error(err)
				}
				if err := cat.Remove(record(subDir)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestCheckNotNested(t *testing.T) {
	cat, _ := open(t)
	for _, subDir := range []string{"a", "team/b/c"} {
		if err := cat.Create(record(subDir)); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]bool{ // directory -> whether it is refused
		"a/x": true, "a/x/y": true, "team": true, "team/b": true, "team/b/c/d": true,
		"a": false, "ab": false, "b": false, "team/x": false, "team/b/x": false, "team/b/c": false,
	}
	for subDir, want := range tests {
		if err := cat.CheckNotNested(subDir); errors.Is(err, volume.ErrOwned) != want || (err != nil) != want {
			t.Errorf("%s: %v, want conflict %v", subDir, err, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	tests := map[string]string{
		"empty":           "",
		"not JSON":        "{",
		"no version":      `{"name":"n","subDir":"pvc-1"}`,
		"newer version":   `{"version":2,"name":"n","subDir":"pvc-1"}`,
		"no name":         `{"version":1,"subDir":"pvc-1"}`,
		"another's":       `{"version":1,"name":"n","subDir":"pvc-2"}`,
		"unknown policy":  `{"version":1,"name":"n","subDir":"pvc-1","onDelete":"quarantine"}`,
		"negative number": `{"version":-1,"name":"n","subDir":"pvc-1"}`,
	}
	for name, content := range tests {
		cat, export := open(t)
		if err := cat.Create(record("pvc-1")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(export, volume.MetaDir, RecordPath("pvc-1")), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := cat.Read("pvc-1"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "pvc-1") {
			t.Errorf("%s: read as %+v, %v", name, r, err)
		}
	}
}

// Something other than a file in the place of a record breaks only that volume.
func TestReadWhatIsNoFile(t *testing.T) {
	cat, export := open(t)
	volumes := filepath.Join(export, volume.MetaDir, volumesDir)
	for _, dir := range []string{"link", "directory/" + volume.RecordFile} {
		mkdirAll(t, filepath.Join(volumes, dir))
	}
	symlink(t, "../file", filepath.Join(volumes, "link", volume.RecordFile))
	symlink(t, "link", filepath.Join(volumes, "linked"))
	must(t, os.WriteFile(filepath.Join(volumes, "file"), nil, 0o600))
	for _, subDir := range []string{"link", "directory", "linked", "file"} {
		_, err := cat.Read(subDir)
		if _, broken := errors.AsType[*BrokenError](err); !broken {
			t.Errorf("%s: %v", subDir, err)
		}
	}
}

func TestOpenRefusesSymlink(t *testing.T) {
	export := t.TempDir()
	if err := os.Mkdir(filepath.Join(export, "tenant"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("tenant", filepath.Join(export, volume.MetaDir)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(export)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := Open(root); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("got %v, want ErrOwned", err)
	}
	mustBeEmpty(t, filepath.Join(export, "tenant"))
}

func TestAbandoned(t *testing.T) {
	cat, export := open(t)
	name, err := cat.TempName("record")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{name, TempDir + "/by-hand", TempDir + "/x"} {
		if err := os.WriteFile(filepath.Join(export, volume.MetaDir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := cat.Abandoned(time.Hour); err != nil || len(got) != 0 {
		t.Errorf("fresh: %v, %v", got, err)
	}
	if got, err := cat.Abandoned(-time.Hour); err != nil || len(got) != 1 || got[0] != name {
		t.Errorf("old: %v, %v, want %s", got, err, name)
	}
}

// A controller with a wrong clock starts a copy or a deletion and keeps it alive. By
// the server's clock, here that of the test's disk, only entries without a heartbeat
// are abandoned.
func TestAbandonedWithSkewedClocks(t *testing.T) {
	for _, skew := range []time.Duration{-24 * time.Hour, -time.Hour, 0, time.Hour, 24 * time.Hour} {
		cat, export := open(t)
		made := time.Now().Add(skew).UnixNano()
		for _, kind := range []string{CopyKind + ".volume.x", "deletedx", "record"} {
			name := filepath.Join(export, volume.MetaDir, TempDir, fmt.Sprintf("%s-%d-X", kind, made))
			if err := os.MkdirAll(name, 0o700); err != nil {
				t.Fatal(err)
			}
			// The heartbeat of a controller with that clock.
			if err := os.Chtimes(name, time.Now().Add(skew), time.Now().Add(skew)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := cat.Abandoned(time.Minute); err != nil || len(got) != 0 {
			t.Errorf("%s: %v, %v is taken from a live controller", skew, got, err)
		}
		copies, err := cat.Temporary(CopyKind + ".volume.x")
		if err != nil || len(copies) != 1 {
			t.Fatal(copies, err)
		}
		before, err := cat.touchTemp()
		if err == nil {
			err = cat.KeepAlive(copies[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(export, volume.MetaDir, copies[0]))
		if err != nil || info.ModTime().Before(before) || info.ModTime().After(time.Now()) {
			t.Errorf("%s: kept alive at %s, %v, and not at %s", skew, info.ModTime(), err, before)
		}
		if got, err := cat.Abandoned(0); err != nil || !slices.Contains(got, copies[0]) {
			t.Errorf("%s: %v, %v, without the copy that nobody keeps alive", skew, got, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range []Record{record("pvc-1"), record("a/b")} {
		b, err := encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"version":1e99}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decode(b); err == nil && (r.Name == "" || r.SubDir == "" || r.Version != recordVersion) {
			t.Fatalf("%q read as %+v", b, r)
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	f.Add([]byte(`{"version":1,"name":"n","id":"s#e#n#n#v","sourceID":"s#e#v##delete","bytes":5,"entries":1,"created":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"version":1e99}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeSnapshot(b); err == nil && (s.Name == "" || s.ID == "" || s.SourceID == "" || s.Version != recordVersion) {
			t.Fatalf("%q read as %+v", b, s)
		}
	})
}

func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("%s has %v, %v", dir, names, err)
	}
}
