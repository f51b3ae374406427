package reclaim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := newPace(10), time.Now()
		for range 21 {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("21 calls at 10 a second took %s", took)
		}
		time.Sleep(time.Minute) // unused time does not accumulate
		began = time.Now()
		for range 11 {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("11 calls after a pause took %s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, p := range []*pace{p, newPace(0)} {
			if err := p.wait(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("canceled: %v", err)
			}
		}
	})
}
