package store

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Every call that rewrites a record keeps what a later driver has written into it.
func TestRewritesKeepLaterFields(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, l *lab, id volume.ID) (rewritten string){
		"expand": func(t *testing.T, l *lab, id volume.ID) string {
			if _, err := l.Expand(t.Context(), id, SizeRange{Required: 5 << 30}, nil); err != nil {
				t.Error(err)
			}
			return recordFile
		},
		"modify": func(t *testing.T, l *lab, id volume.ID) string {
			if err := l.Modify(t.Context(), id, volume.Mutable{OnDelete: volume.OnDeleteArchive}, nil); err != nil {
				t.Error(err)
			}
			return recordFile
		},
		"a copy found whole": func(t *testing.T, l *lab, id volume.ID) string {
			source := l.create(t, "source")
			rec := l.record(t, "pvc-1")
			rec.Source, rec.Pending = (&Source{Volume: &source}).String(), true
			if err := l.onCatalog(t, func(x *session.Session) error { return x.Cat.Replace(rec) }); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Create(t.Context(), l.from("pvc-1", Source{Volume: &source})); err != nil {
				t.Error(err)
			}
			if l.record(t, "pvc-1").Pending {
				t.Error("the record was not rewritten")
			}
			return recordFile
		},
		"retain": func(t *testing.T, l *lab, id volume.ID) string {
			if err := l.Modify(t.Context(), id, volume.Mutable{OnDelete: volume.OnDeleteRetain}, nil); err != nil {
				t.Error(err)
			}
			l.delete(t, id)
			return ".nfs-csi/retained/pvc-1"
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			id := l.create(t, "pvc-1")
			later := map[string]any{"deeper": []any{"kept"}}
			rec := l.readJSON(t, recordFile)
			rec["later"] = later
			l.writeJSON(t, recordFile, rec)
			if got, ok := l.readJSON(t, call(t, l, id))["later"].(map[string]any); !ok || len(got["deeper"].([]any)) != 1 {
				t.Errorf("left of what a later driver wrote is %v, want %v", got, later)
			}
		})
	}
}

const recordFile = ".nfs-csi/volumes/pvc-1/.record.json"

func (l *lab) readJSON(t *testing.T, file string) map[string]any {
	t.Helper()
	out := map[string]any{}
	b, err := os.ReadFile(filepath.Join(l.dir, file))
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (l *lab) writeJSON(t *testing.T, file string, object map[string]any) {
	t.Helper()
	b, err := json.Marshal(object)
	if err == nil {
		err = os.WriteFile(filepath.Join(l.dir, file), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// After a downgrade there may be records of a later version: nothing is done by them,
// or to what they are of.
func TestNewerRecordsAreLeftAlone(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.put(t, "pvc-1/file")
	snap, group := l.snapshot(t, "s", id), l.group(t, "g", id)
	for _, file := range []string{recordFile, ".nfs-csi/snapshots/s/record.json", ".nfs-csi/groups/g/record.json", ".nfs-csi/groups/g/1/record.json"} {
		rec := l.readJSON(t, file)
		// As a later version may have it, which would be no record to this one.
		rec["version"], rec["created"], rec["members"] = 2, 1234, "elsewhere"
		l.writeJSON(t, file, rec)
	}
	before := l.content(t, recordFile)
	source := Source{Snapshot: &snap.ID}
	clone := Source{Volume: &id}
	for name, call := range map[string]func() error{
		"create":           func() error { _, err := l.Create(t.Context(), l.request("pvc-1")); return err },
		"create as a copy": func() error { _, err := l.Create(t.Context(), l.from("pvc-1", source)); return err },
		"adopt":            func() error { _, err := l.Create(t.Context(), l.classed("pvc-2", "pvc-1", "")); return err },
		"get":              func() error { _, err := l.Get(t.Context(), id, nil); return err },
		"expand":           func() error { _, err := l.Expand(t.Context(), id, SizeRange{Required: 5 << 30}, nil); return err },
		"modify":           func() error { return l.Modify(t.Context(), id, volume.Mutable{Mode: 0o700}, nil) },
		"delete":           func() error { return l.Delete(t.Context(), id, nil) },
		"clone":            func() error { _, err := l.Create(t.Context(), l.from("pvc-3", clone)); return err },
		"snapshot":         func() error { _, err := l.CreateSnapshot(t.Context(), l.snapshotReq("s2", id)); return err },
		"snapshot again":   func() error { _, err := l.CreateSnapshot(t.Context(), l.snapshotReq("s", id)); return err },
		"get snapshot":     func() error { _, err := l.GetSnapshot(t.Context(), snap.ID, nil); return err },
		"restore":          func() error { _, err := l.Create(t.Context(), l.from("pvc-3", source)); return err },
		"delete snapshot":  func() error { return l.DeleteSnapshot(t.Context(), snap.ID, nil) },
		"group again":      func() error { _, err := l.CreateGroup(t.Context(), groupReq("g", id)); return err },
		"get group":        func() error { _, err := l.GetGroup(t.Context(), group.ID, nil, nil); return err },
		"get member":       func() error { _, err := l.GetSnapshot(t.Context(), group.Members[0].ID, nil); return err },
		"delete group":     func() error { return l.DeleteGroup(t.Context(), group.ID, nil, nil) },
	} {
		if err := call(); !errors.Is(err, volume.ErrNewerRecord) {
			t.Errorf("%s: %v, want ErrNewerRecord", name, err)
		}
	}
	l.create(t, "pvc-4")
	if list := l.listAll(t, 0); !slices.Equal(list, []string{"nfs.test pvc-4"}) {
		t.Errorf("volumes listed are %q, want the other one only", list)
	}
	if list, _, err := l.ListSnapshots(t.Context(), inventory.SnapshotQuery{}); err != nil || len(list) != 0 {
		t.Errorf("snapshots listed are %v, %v", list, err)
	}
	if after := l.content(t, recordFile); after != before {
		t.Errorf("the record became %s", after)
	}
	l.mustHave(t, slices.Concat(live("pvc-1"), live("pvc-4"), []string{"pvc-1/file"}, grouped("g", []string{"file"}),
		[]string{".nfs-csi/snapshots/s", ".nfs-csi/snapshots/s/record.json", ".nfs-csi/snapshots/s/data", ".nfs-csi/snapshots/s/data/file"})...)
	l.mustHaveNoTemp(t)
}
