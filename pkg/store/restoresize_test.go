package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	small    = 1 << 10
	overfill = 5 * small // more than the volume is to hold: nothing enforces that
)

// overfull is a volume of 1 KiB with 5 KiB in it.
func (l *lab) overfull(t *testing.T, name string) volume.ID {
	t.Helper()
	req := l.request(name)
	req.Size = SizeRange{Required: small}
	id := l.createAs(t, req)
	if err := os.WriteFile(filepath.Join(l.dir, name, "file"), make([]byte, overfill), 0o600); err != nil {
		t.Fatal(err)
	}
	return id
}

// A backup tool restores into a claim of the source's size, whatever that holds.
func TestCopiesFitByCapacity(t *testing.T) {
	l := newLab(t)
	id := l.overfull(t, "pvc-1")
	s := l.snapshot(t, "s", id)
	if s.Capacity != small || s.Bytes != overfill {
		t.Errorf("the snapshot has a capacity of %d and %d bytes, want %d and %d", s.Capacity, s.Bytes, small, overfill)
	}
	g := l.group(t, "g", id)
	if m := g.Members[0]; m.Capacity != small || m.Bytes != overfill {
		t.Errorf("the member has a capacity of %d and %d bytes, want %d and %d", m.Capacity, m.Bytes, small, overfill)
	}
	if _, err := l.Expand(t.Context(), id, SizeRange{Required: 3 * small}, nil); err != nil {
		t.Fatal(err)
	}
	sources := map[string]Source{"snapshot": {Snapshot: &s.ID}, "member": {Snapshot: &g.Members[0].ID}, "clone": {Volume: &id}}
	for name, tt := range map[string]struct {
		size               SizeRange
		snapshot, ofVolume int64
	}{
		"like-the-source": {SizeRange{Required: small}, small, small},
		"larger":          {SizeRange{Required: 9 * small}, 9 * small, 9 * small},
		"smaller":         {SizeRange{Required: 1, Limit: 2}, 1, 1},
		"any":             {SizeRange{}, small, 3 * small},
		"limited":         {SizeRange{Limit: 2 * small}, small, 2 * small},
	} {
		for kind, src := range sources {
			req := l.from(name+"-"+kind, src)
			req.Size = tt.size
			want := tt.snapshot
			if src.Volume != nil {
				want = tt.ofVolume
			}
			if v, err := l.Create(t.Context(), req); err != nil || v.Capacity != want {
				t.Errorf("%s: made %+v, %v, want %d bytes", req.Name, v, err, want)
			}
			if info, err := os.Stat(filepath.Join(l.dir, req.Name, "file")); err != nil || info.Size() != overfill {
				t.Errorf("%s: %v, %v", req.Name, info, err)
			}
		}
	}
	impossible := l.from("impossible", sources["snapshot"])
	impossible.Size = SizeRange{Required: 2, Limit: 1}
	if _, err := l.Create(t.Context(), impossible); !errors.Is(err, volume.ErrOutOfRange) {
		t.Errorf("of at least 2 bytes and at most 1: %v, want ErrOutOfRange", err)
	}
}

// Nobody has told the driver how large a predecessor's volume is.
func TestSnapshotOfUnknownCapacity(t *testing.T) {
	l := newLab(t)
	l.put(t, "legacy/file")
	s := l.snapshot(t, "s", l.id("legacy"))
	if s.Capacity != 0 || s.Bytes == 0 {
		t.Errorf("the snapshot has a capacity of %d and %d bytes", s.Capacity, s.Bytes)
	}
	l.mustRestore(t, s, 1)
}

// Snapshots of earlier drivers have no capacity in their records.
func TestSnapshotWithoutACapacity(t *testing.T) {
	l := newLab(t)
	id := l.overfull(t, "pvc-1")
	made := l.snapshot(t, "s", id)
	const file = ".nfs-csi/snapshots/s/record.json"
	rec := l.readJSON(t, file)
	if rec["capacity"] != float64(small) {
		t.Errorf("its record has the capacity %v", rec["capacity"])
	}
	delete(rec, "capacity")
	l.writeJSON(t, file, rec)
	want := made
	want.Capacity = 0
	if again := l.snapshot(t, "s", id); again != want {
		t.Errorf("created again: %+v, want %+v", again, want)
	}
	if got, err := l.GetSnapshot(t.Context(), made.ID, nil); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if list, _, err := l.ListSnapshots(t.Context(), inventory.SnapshotQuery{}); err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("listed %+v, %v, want %+v", list, err, want)
	}
	l.mustRestore(t, want, small)
}

func (l *lab) mustRestore(t *testing.T, s Snapshot, size int64) {
	t.Helper()
	req := l.from("restored", Source{Snapshot: &s.ID})
	req.Size = SizeRange{Required: size}
	if v, err := l.Create(t.Context(), req); err != nil || v.Capacity != size {
		t.Errorf("restored %+v, %v, want %d bytes", v, err, size)
	}
}
