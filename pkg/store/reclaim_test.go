package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/store/reclaim"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// onePort mounts with port=2050 only.
type onePort struct{ session.Shares }

func (o onePort) AcquireAny(ctx context.Context, export volume.Export, options []string) (*share.Handle, error) {
	if !slices.Contains(options, "port=2050") {
		return nil, errors.New("connection refused")
	}
	return o.Shares.AcquireAny(ctx, export, options)
}

// A deletion ends the backoff of an export that could not be mounted, since it has
// mounted the export.
func TestDeletionEndsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s, err := New(t.Context(), Config{
			Shares: onePort{l.cfg.Shares}, ReclaimWorkers: 1, CopyWorkers: 1,
			Exports: []volume.Export{l.export}, MountOptions: []string{"port=2049"},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		req := l.request("pvc-1")
		req.MountOptions = []string{"port=2050"}
		v, err := s.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), v.ID, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		left, err := os.ReadDir(filepath.Join(l.dir, ".nfs-csi/trash"))
		if err != nil || len(left) != 0 {
			t.Errorf("in the trash: %v, %v", left, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestReclaimIsPacedAndCounted(t *testing.T) {
	l := newLab(t)
	l.reclaimWith(t, reclaim.Config{Rate: 100})
	id := l.create(t, "pvc-1")
	for i := range 9 {
		l.put(t, filepath.Join("pvc-1", fmt.Sprint(i)))
	}
	began := time.Now()
	if err := l.Delete(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	l.reclaim.Wait()
	if took := time.Since(began); took < 90*time.Millisecond {
		t.Errorf("removed 10 entries in %s at 100 a second", took)
	}
	b := l.Backlog()
	if len(b) != 1 || b[0] != (reclaim.Backlog{Export: l.export, Removed: 10}) {
		t.Errorf("backlog %+v", b)
	}
}

// What the server refuses to remove shows in the health of every volume of the export.
func TestHealthShowsWhatRemains(t *testing.T) {
	l := newLab(t)
	id := l.create(t, "pvc-1")
	l.reclaim.Wait()
	for deleted, entry := range []string{"", "trash/x: permission denied"} {
		l.inventory = inventory.New(inventory.Config{
			Exports: l.exports, Refused: func(volume.Export) (int64, string) { return int64(deleted), entry },
		})
		l.inventory.Opened(l.target(l.export, "", nil))
		found, err := l.Health(t.Context(), id, nil)
		page, listErr := l.ListHealth(t.Context(), 0, "")
		if err := errors.Join(err, listErr); err != nil || len(found) != deleted || len(page.Volumes) != deleted {
			t.Errorf("%d are refused: the health is %v, in the list %v, %v", deleted, found, page.Volumes, err)
		}
		if deleted > 0 && (found[0].Reason != "DeletedVolumesRemain" || !strings.Contains(found[0].Message, entry)) {
			t.Errorf("it says %+v", found[0])
		}
	}
}
