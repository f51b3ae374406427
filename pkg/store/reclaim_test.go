package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// onePort cannot mount with another port.
type onePort struct{ session.Shares }

func (o onePort) AcquireAny(ctx context.Context, export volume.Export, options []string) (*share.Handle, error) {
	if !slices.Contains(options, "port=2050") {
		return nil, errors.New("connection refused")
	}
	return o.Shares.AcquireAny(ctx, export, options)
}

// Reclaiming that could not begin for long does so when there is something to
// reclaim, as whoever deleted it had the export mounted.
func TestReclaimOfAnExportThatCameBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s, err := New(t.Context(), Config{
			Shares: onePort{l.cfg.Shares}, ReclaimWorkers: 1, CopyWorkers: 1,
			Exports: []volume.Export{l.export}, MountOptions: []string{"port=2049"},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * reclaimRetryMax)
		req := l.request("pvc-1")
		req.MountOptions = []string{"port=2050"}
		v, err := s.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), v.ID, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * reclaimRetryMin)
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
