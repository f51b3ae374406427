package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// However many calls arrive before a server is found to be dead, it blocks a bounded
// number of threads. Waiting calls fail with the reason; other servers are not affected.
func TestDeadServerHoldsUpABoundedNumberOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		other := volume.Export{Server: "other.test", Share: "/"}
		l.fake.AddExport(other, t.TempDir())
		l.create(t, "pvc-0")
		var held, most atomic.Int32
		back := make(chan struct{})
		l.step = func(_ context.Context, name string) error {
			if name == "create directory" {
				if n := held.Add(1); n > most.Load() {
					most.Store(n)
				}
				<-back
				held.Add(-1)
			}
			return nil
		}
		var calls sync.WaitGroup
		for i := range 2 * session.CallsAtATime {
			calls.Go(func() {
				if _, err := l.Create(t.Context(), l.request(fmt.Sprint("pvc-", i+1))); !errors.Is(err, volume.ErrUnreachable) {
					t.Errorf("got %v, want ErrUnreachable", err)
				}
			})
		}
		synctest.Wait()
		if n := held.Load(); n != session.CallsAtATime {
			t.Errorf("%d calls are held up, want %d", n, session.CallsAtATime)
		}
		up := l.fake.Hang(l.export.Server)
		calls.Wait()
		l.step = func(context.Context, string) error { return nil }
		req := l.request("pvc-1")
		req.Params.Export = other
		if _, err := l.Create(t.Context(), req); err != nil {
			t.Errorf("on another server: %v", err)
		}
		if n := held.Load(); n > session.CallsAtATime {
			t.Errorf("%d calls are held up after all", n)
		}
		up()
		close(back)
		l.exports.Wait()
		if n := most.Load(); n != session.CallsAtATime {
			t.Errorf("%d at a time", n)
		}
		if n := l.exports.Busy(); n != 0 {
			t.Errorf("%d servers are kept after the last call", n)
		}
	})
}

// Copies from a server that hangs leave those from others their turns.
func TestCopiesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		far := volume.Export{Server: "far.test", Share: "/"}
		l.fake.AddExport(far, t.TempDir())
		there := l.createOn(t, far, "far")
		here := l.create(t, "here")
		var held atomic.Int32
		back := make(chan struct{})
		block := func(_ context.Context, name string) error {
			if name == "copy" {
				held.Add(1)
				<-back
			}
			return nil
		}
		l.step = block
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := range copyjob.MaxActive + 3 {
			calls.Go(func() {
				if _, err := l.Create(ctx, l.from(fmt.Sprint("pvc-", i), Source{Volume: &there})); !errors.Is(err, volume.ErrInProgress) {
					t.Errorf("got %v, want ErrInProgress", err)
				}
			})
		}
		synctest.Wait()
		if n := held.Load(); n != copyjob.MaxActive {
			t.Errorf("%d copies at a time, want %d", n, copyjob.MaxActive)
		}
		cancel()
		calls.Wait()
		l.step = func(context.Context, string) error { return nil }
		if _, err := l.Create(t.Context(), l.from("clone", Source{Volume: &here})); err != nil {
			t.Errorf("of another server: %v", err)
		}
		// Deleting ends also one that waits for its turn.
		for i := range copyjob.MaxActive + 3 {
			name := fmt.Sprint("pvc-", i)
			go l.copies.Volumes.End(t.Context(), session.Key{Export: l.export, SubDir: name}, name) //nolint:errcheck // those that hang end later
		}
		synctest.Wait()
		if copies, _, _ := l.copies.Backlog(); copies != copyjob.MaxActive {
			t.Errorf("%d copies are left, want those that hang", copies)
		}
		close(back)
		l.copies.Wait()
	})
}
