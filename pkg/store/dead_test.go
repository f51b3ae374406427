package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A server that dies under a job holds up the job and its volume; callers are
// told, the next ones at once.
func TestServerDiesUnderAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.create(t, "pvc-0")
		died := make(chan func())
		back := make(chan struct{})
		l.step = func(_ context.Context, name string) error {
			if name == "make directory" {
				died <- l.fake.Hang(l.export.Server)
				<-back
			}
			return nil
		}
		mustBeUnreachable := func(limit time.Duration) {
			t.Helper()
			began := time.Now()
			_, err := l.Create(t.Context(), l.request("pvc-1"))
			if !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), l.export.Server) {
				t.Errorf("got %v, want ErrUnreachable naming the server", err)
			}
			if took := time.Since(began); took > limit {
				t.Errorf("took %s, at most %s is allowed", took, limit)
			}
		}
		release := make(chan func(), 1)
		go func() { release <- <-died }()
		var waits sync.WaitGroup
		waits.Go(func() { mustBeUnreachable(10 * time.Second) })
		waits.Go(func() { mustBeUnreachable(10 * time.Second) }) // for the first one's lock
		waits.Wait()
		mustBeUnreachable(2 * time.Second)
		(<-release)()
		l.step = func(context.Context, string) error { return nil }
		close(back)
		l.create(t, "pvc-1")
	})
}
