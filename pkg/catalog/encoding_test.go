package catalog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const laterRecord = `{
  "version": 1, "name": "n", "id": "s#e#pvc-1", "subDir": "pvc-1", "capacity": 5,
  "parameters": {"server": "s", "later": "kept as well"}, "onDelete": "delete", "created": "2026-01-02T03:04:05.000000006Z",
  "later": {"deeper": [1, {"big": 12345678901234567890, "text": "<&>"}]}, "laterNull": null
}`

// A later version of the driver may add fields to any object.
func TestUnknownFieldsAreKept(t *testing.T) {
	for name, tt := range map[string]struct {
		record any
		text   string
	}{
		"volume":   {new(Record), laterRecord},
		"snapshot": {new(Snapshot), `{"version": 1, "name": "n", "id": "i", "sourceID": "s", "bytes": 5, "entries": 2, "created": "2026-01-02T03:04:05Z", "later": [true]}`},
		"group": {new(Group), `{"version": 1, "name": "n", "id": "i", "created": "2026-01-02T03:04:05Z", "later": 1,
			"members": [{"id": "a", "sourceID": "b", "later": "first"}, {"id": "c", "sourceID": "d"}]}`},
	} {
		if err := json.Unmarshal([]byte(tt.text), tt.record); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, err := marshal(tt.record)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, want := decodeAny(t, b), decodeAny(t, []byte(tt.text)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: written again as %v, want %v", name, got, want)
		}
	}
}

func TestReplaceKeepsUnknownFields(t *testing.T) {
	cat, export := open(t)
	mustCreate(t, cat, "pvc-1")
	file := filepath.Join(export, volume.MetaDir, RecordPath("pvc-1"))
	must(t, os.WriteFile(file, []byte(laterRecord), 0o600))
	r, err := cat.Read("pvc-1")
	must(t, err)
	r.Capacity, r.OnDelete = 7, volume.OnDeleteRetain
	must(t, cat.Replace(r))
	want := decodeAny(t, []byte(laterRecord))
	want["capacity"], want["onDelete"] = json.Number("7"), "retain"
	b, err := os.ReadFile(file)
	must(t, err)
	if got := decodeAny(t, b); !reflect.DeepEqual(got, want) {
		t.Errorf("replaced by %v, want %v", got, want)
	}
}

// A field that json.Unmarshal matches regardless of case is not unknown, or the object
// would have it twice.
func TestFieldsInAnotherCase(t *testing.T) {
	var r Record
	must(t, json.Unmarshal([]byte(`{"version": 1, "NAME": "n"}`), &r))
	if r.Name != "n" || len(r.unknown) != 0 {
		t.Errorf("read %+v", r)
	}
}

// decodeAny reads JSON without a struct, and numbers as they are written.
func decodeAny(t *testing.T, b []byte) map[string]any {
	t.Helper()
	out := map[string]any{}
	decoder := json.NewDecoder(strings.NewReader(string(b)))
	decoder.UseNumber()
	must(t, decoder.Decode(&out))
	return out
}
