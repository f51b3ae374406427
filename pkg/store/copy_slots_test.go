package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Copies that never end keep slots from other tenants only while they make progress.
// The error of a waiting call says what it waits for.
func TestCopyBehindStuckOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		stuck, other := l.create(t, "stuck"), l.create(t, "other")
		back := make(chan struct{})
		l.step = func(ctx context.Context, name string) error {
			if name == "begin copy" {
				<-back
			}
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		for i := range copyjob.MaxActive {
			go l.Create(ctx, l.from(fmt.Sprint("copy-", i), Source{Volume: &stuck})) //nolint:errcheck // it does not end
		}
		synctest.Wait()
		cancel()
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := l.Create(short, l.from("clone", Source{Volume: &other}))
		if !errors.Is(err, volume.ErrInProgress) || !strings.Contains(err.Error(), "waiting for a slot: 8 copies work from nfs.test to nfs.test, 1 wait") {
			t.Errorf("got %v", err)
		}
		l.step = func(ctx context.Context, _ string) error { return ctx.Err() }
		if _, err := l.Create(t.Context(), l.from("clone", Source{Volume: &other})); err != nil {
			t.Errorf("behind stuck copies: %v", err)
		}
		close(back)
		l.copies.Wait()
	})
}
