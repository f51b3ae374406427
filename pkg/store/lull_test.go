package store

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLull(t *testing.T) {
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
				wake := make(chan struct{}, 1)
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
				(&reclaimer{after: time.Second, ctx: ctx}).lull(wake)
				if took := time.Since(began); took != tt.want {
					t.Errorf("waited %s, want %s", took, tt.want)
				}
			})
		})
	}
}
