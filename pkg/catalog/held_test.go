package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Between reading a record and changing it, another volume may take its path, even one
// of the same name.
func TestHeldSparesALaterRecord(t *testing.T) {
	for name, do := range map[string]func(*Held) error{
		"remove":  func(h *Held) error { return h.Remove() },
		"replace": func(h *Held) error { return h.Replace(h.Record()) },
	} {
		for _, subDir := range []string{"pvc", "team/pvc"} {
			cat, export := open(t)
			first, later := record(subDir), record(subDir)
			later.Created = later.Created.Add(time.Nanosecond)
			must(t, cat.Create(first))
			h, err := cat.Hold(subDir)
			must(t, err)
			must(t, cat.Remove(first))
			must(t, cat.Create(later))
			if still, err := h.Exists(); still || err != nil {
				t.Errorf("%s: still there: %v, %v", name, still, err)
			}
			if err := do(h); name == "replace" && !errors.Is(err, unix.ESTALE) || name == "remove" && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			must(t, h.Close())
			must(t, cat.Remove(first))
			if err := cat.Replace(first); !errors.Is(err, unix.ESTALE) {
				t.Errorf("replace a record that is gone: %v", err)
			}
			if r, err := cat.Read(subDir); err != nil || !r.Same(later) {
				t.Errorf("%s: the later record: %+v, %v", name, r, err)
			}
			mustBeEmpty(t, filepath.Join(export, volume.MetaDir, TempDir))
		}
	}
}

// A record written between the removal of the old one and of its directory is removed
// as well.
func TestHeldRemovesWhatReplacedIt(t *testing.T) {
	cat, export := open(t)
	must(t, cat.Create(record("pvc")))
	h, err := cat.Hold("pvc")
	must(t, err)
	changed := record("pvc")
	changed.Capacity = 5
	must(t, cat.Replace(changed))
	if still, err := h.Exists(); !still || err != nil {
		t.Errorf("changed, and still there: %v, %v", still, err)
	}
	must(t, h.Remove())
	must(t, h.Close())
	mustBeEmpty(t, filepath.Join(export, volume.MetaDir, volumesDir))
}

// A record gets a directory of its own even where a client that died left a
// silly-renamed file.
func TestCreateOverAFileLeftOpen(t *testing.T) {
	cat, export := open(t)
	dir := filepath.Join(export, volume.MetaDir, volumesDir, "pvc")
	mkdirAll(t, filepath.Join(dir, "below"))
	for _, name := range []string{".nfs0001", "below/.nfs0002"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	before, err := os.Stat(dir)
	must(t, err)
	must(t, cat.Create(record("pvc")))
	if after, err := os.Stat(dir); err != nil || os.SameFile(before, after) {
		t.Errorf("the record is in the directory that was there: %v", err)
	}
}
