package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
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
			l.replaceRecord(t, rec)
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

func (l *lab) replaceRecord(t *testing.T, rec catalog.Record) {
	t.Helper()
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	cat, err := catalog.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer cat.Close()
	if err := cat.Replace(rec); err != nil {
		t.Fatal(err)
	}
}
