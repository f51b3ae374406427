package reclaim

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/store/session"
)

func TestNewChecksTheConfiguration(t *testing.T) {
	upkeep := func(context.Context, *session.Session, func() bool) {}
	exports := session.New(session.Config{})
	for what, cfg := range map[string]Config{
		"no exports":      {Workers: 1, Upkeep: upkeep},
		"no upkeep":       {Exports: exports, Workers: 1},
		"no worker":       {Exports: exports, Upkeep: upkeep},
		"a negative rate": {Exports: exports, Workers: 1, Rate: -1, Upkeep: upkeep},
	} {
		if _, err := New(t.Context(), cfg); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestDebounce(t *testing.T) {
	for name, tt := range map[string]struct {
		deletions int // half a second apart
		want      time.Duration
	}{
		"one deletion":    {0, time.Second},
		"a burst of them": {3, 2500 * time.Millisecond},
		"no end of them":  {1000, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer stop()
				wake := newWakeup()
				wg.Go(func() {
					for range tt.deletions {
						time.Sleep(500 * time.Millisecond)
						select {
						case wake <- struct{}{}:
						case <-ctx.Done():
							return
						}
					}
				})
				began := time.Now()
				(&Reclaimer{cfg: Config{Debounce: time.Second}, ctx: ctx}).debounce(wake)
				if took := time.Since(began); took != tt.want {
					t.Errorf("waited %s, want %s", took, tt.want)
				}
			})
		})
	}
}
