package catalog

import (
	"encoding"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// kinds are the objects of records by their headings in docs/format.md.
var kinds = map[string]reflect.Type{
	"Volume record":   reflect.TypeFor[Record](),
	"Snapshot record": reflect.TypeFor[Snapshot](),
	"Group record":    reflect.TypeFor[Group](),
	"Member":          reflect.TypeFor[Member](),
}

// docs/format.md lists every field of every record with its type, and no others.
func TestFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/format.md")
	must(t, err)
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n### ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		sections[heading] = text
	}
	if got, want := slices.Sorted(maps.Keys(sections)), slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, want) {
		t.Fatalf("docs/format.md has the records %q, there are %q", got, want)
	}
	for heading, kind := range kinds {
		got, want := documented(t, sections[heading]), map[string]string{}
		for field := range kind.Fields() {
			if name, options, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
				want[name] = typeName(field.Type)
				if options == "omitempty" {
					want[name] = "optional " + want[name]
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("docs/format.md says of the %s\n%v, it has\n%v", heading, got, want)
		}
	}
}

// documented reads the types of fields from a table.
func documented(t *testing.T, section string) map[string]string {
	t.Helper()
	types := map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 3 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 7 || slices.Contains(cells[1:6], "") {
			t.Errorf("docs/format.md: incomplete row %s", line)
			continue
		}
		types[strings.Trim(cells[1], "`")] = cells[2]
	}
	return types
}

func typeName(of reflect.Type) string {
	switch {
	case of == reflect.TypeFor[time.Time]():
		return "time"
	case of == reflect.TypeFor[[]Member]():
		return "list of members"
	case of.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "string"
	}
	switch of.Kind() {
	case reflect.Pointer:
		return typeName(of.Elem())
	case reflect.Map:
		return "object of " + typeName(of.Elem()) + "s"
	case reflect.Slice:
		return "list of " + typeName(of.Elem()) + "s"
	case reflect.Int, reflect.Int64, reflect.Uint32:
		return "integer"
	case reflect.Bool:
		return "boolean"
	}
	return of.Kind().String()
}

// golden are the records in testdata/v1 as they must be read: every form that a
// released driver has written.
func golden() map[string]any {
	at := time.Date(2026, 11, 20, 9, 8, 7, 123456789, time.UTC)
	const id = "nfs.example#export#team/claim#pvc-1#retain"
	rec := func(change func(*Record)) Record {
		r := Record{
			Version: 1, Name: "pvc-1", ID: id, SubDir: "team/claim", Capacity: 1 << 30,
			Parameters: map[string]string{
				volume.KeyServer: "nfs.example", volume.KeyShare: "/export",
				volume.KeySubDir: "${pvc.metadata.namespace}/${pvc.metadata.name}",
			},
			Metadata: map[string]string{volume.KeyPVCName: "claim", volume.KeyPVCNamespace: "team"},
			OnDelete: volume.OnDeleteRetain, MountOptions: []string{"nfsvers=4.1", "hard"}, Created: at,
		}
		change(&r)
		return r
	}
	return map[string]any{
		"volume.json": rec(func(*Record) {}),
		"volume-source.json": rec(func(r *Record) {
			r.Source = "snapshot nfs.example#export#snapshot-1#snapshot-1#pvc-0"
		}),
		"volume-ownership.json": rec(func(r *Record) {
			r.Mode, r.UID, r.GID, r.Adopted = 0o2770, new(uint32(1000)), new(uint32(0)), true
		}),
		"volume-archive.json": Record{
			Version: 1, Name: "pvc-1", ID: id, SubDir: "team/archived-claim", OnDelete: volume.OnDeleteRetain, ArchiveOf: id, Created: at,
		},
		"volume-pending.json": rec(func(r *Record) {
			r.Mode, r.UID, r.GID, r.Source, r.Pending = 0o2770, new(uint32(1000)), new(uint32(0)), "volume nfs.example#export#pvc-0#", true
		}),
		"volume-cluster.json": rec(func(r *Record) { r.ClusterID = "prod-1" }),
		"volume-reused.json": rec(func(r *Record) {
			r.ClusterID, r.ReusedFrom, r.Adopted = "prod-1", "nfs.example#export#team/claim#pvc-0#retain", true
		}),
		"volume-shared.json": rec(func(r *Record) {
			r.SubDir, r.Shared = "team/claim/pvc-1", SharedVolume
		}),
		"directory-shared.json": Record{
			Version: 1, Name: "shared directory", ID: "nfs.example#export#team/claim#shared directory#retain", SubDir: "team/claim",
			OnDelete: volume.OnDeleteRetain, Mode: 0o2775, Shared: SharedDirectory, Created: at,
		},
		"snapshot.json": Snapshot{
			Version: 1, Name: "snapshot-1", ID: "nfs.example#export#snapshot-1#snapshot-1#pvc-1", SourceID: id,
			Bytes: 5 << 30, Entries: 42, Created: at,
		},
		"snapshot-capacity.json": Snapshot{
			Version: 1, Name: "snapshot-1", ID: "nfs.example#export#snapshot-1#snapshot-1#pvc-1", SourceID: id,
			Capacity: 1 << 30, Bytes: 5 << 30, Entries: 42, Created: at,
		},
		"group.json": Group{
			Version: 1, Name: "group-1", ID: "nfs.example#export#group-1###group", Created: at, Members: []Member{
				{ID: "nfs.example#export#group-1#1#pvc-1#group", SourceID: id},
				{ID: "nfs.example#export#group-1#2#pvc-2#group", SourceID: "nfs.example#export#pvc-2##delete"},
			},
		},
	}
}

// Records of every form survive being read and written.
func TestGoldenRecords(t *testing.T) {
	dir := filepath.Join("testdata", "v1")
	entries, err := os.ReadDir(dir)
	must(t, err)
	want := golden()
	if len(entries) != len(want) {
		t.Errorf("%s has %d records, the test knows %d", dir, len(entries), len(want))
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		got, err := decodeLike(want[e.Name()], b)
		if err != nil || !reflect.DeepEqual(got, want[e.Name()]) {
			t.Errorf("%s: read as %+v, %v, want %+v", e.Name(), got, err, want[e.Name()])
			continue
		}
		again, err := marshal(got)
		if err != nil || string(again) != string(b) {
			t.Errorf("%s: written again as %s, %v", e.Name(), again, err)
		}
	}
}

func decodeLike(record any, b []byte) (any, error) {
	switch record.(type) {
	case Snapshot:
		return decodeSnapshot(b)
	case Group:
		return decodeGroup(b)
	}
	return decode(b)
}

// A new field needs a golden record that has it.
func TestEveryFieldIsInAGoldenRecord(t *testing.T) {
	seen := map[string]bool{}
	for name, record := range golden() {
		b, err := os.ReadFile(filepath.Join("testdata", "v1", name))
		must(t, err)
		var fields map[string]json.RawMessage
		must(t, json.Unmarshal(b, &fields))
		for field := range fields {
			seen[reflect.TypeOf(record).Name()+"."+field] = true
		}
	}
	for _, record := range []any{Record{}, Snapshot{}, Group{}} {
		kind := reflect.TypeOf(record)
		for _, field := range fieldNames(kind) {
			if !seen[kind.Name()+"."+field] {
				t.Errorf("no record in testdata/v1 has %s of %s: add one", field, kind.Name())
			}
		}
	}
}
