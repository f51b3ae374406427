package nfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// addRecords puts volumes on the server, as a controller would have left them.
func addRecords(t *testing.T, e volume.Export, dir string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		name := fmt.Sprintf("old-%05d", i)
		at := filepath.Join(dir, ".nfs-csi/volumes", name)
		id := volume.ID{Export: e, SubDir: name, Name: name}
		text := fmt.Sprintf(`{"version":1,"name":%q,"id":%q,"subDir":%q,"onDelete":"delete","created":"2026-01-01T00:00:00Z"}`, name, id.String(), name)
		for _, d := range []string{filepath.Join(dir, name), at} {
			if err := os.MkdirAll(d, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(at, ".record.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unix.Sync() // or the calls' own fsync(2) would pay for it
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// TestCostDoesNotGrow: with 10,000 volumes on the export a call costs what it
// costs with 100. The bound is wide, for a machine that does other things; `make
// bench` has the figures.
func TestCostDoesNotGrow(t *testing.T) {
	e, dir := export(t, "LAB_EXPORT_EXT4", "rw,no_root_squash", 0o777)
	s := newStore(t)
	measure := func(volumes int) (create, remove, entry time.Duration) {
		var creates, removes, entries []time.Duration
		for i := range 41 {
			req := store.CreateRequest{Name: fmt.Sprintf("new-%d-%d", volumes, i), Params: volume.Params{Export: e}}
			begin := time.Now()
			v, err := s.Create(t.Context(), req)
			made := time.Now()
			if err == nil {
				err = s.Delete(t.Context(), v.ID, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			creates, removes = append(creates, made.Sub(begin)), append(removes, time.Since(made))
		}
		total := 0
		for token, more := "", true; more; {
			begin := time.Now()
			page, err := s.List(t.Context(), 500, token)
			if err != nil {
				t.Fatal(err)
			}
			total += len(page.Volumes)
			entries = append(entries, time.Since(begin)/time.Duration(len(page.Volumes)))
			token = page.Next
			more = token != ""
		}
		if total != volumes {
			t.Errorf("listed %d volumes of %d", total, volumes)
		}
		t.Logf("%5d volumes: create %v, delete %v, per volume listed %v", volumes, median(creates), median(removes), median(entries))
		return median(creates), median(removes), median(entries)
	}
	addRecords(t, e, dir, 0, 100)
	create1, remove1, entry1 := measure(100)
	addRecords(t, e, dir, 100, 10000)
	create2, remove2, entry2 := measure(10000)
	for name, pair := range map[string][2]time.Duration{"create": {create1, create2}, "delete": {remove1, remove2}, "list": {entry1, entry2}} {
		if pair[1] > 3*pair[0] {
			t.Errorf("%s: %v with 100 volumes and %v with 10,000", name, pair[0], pair[1])
		}
	}
}
