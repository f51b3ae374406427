package keyed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneHolderPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter[string]
		var all sync.WaitGroup
		holders, done := 0, 0
		for range 50 {
			all.Go(func() {
				release, err := l.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				if holders++; holders != 1 {
					t.Errorf("%d holders at once", holders)
				}
				time.Sleep(time.Millisecond)
				holders--
				done++
				release()
			})
		}
		all.Wait()
		if done != 50 {
			t.Errorf("%d of 50 got the key", done)
		}
		if l.Len() != 0 {
			t.Errorf("%d keys are kept after the last release", l.Len())
		}
	})
}

func TestOtherKeysAreFree(t *testing.T) {
	var l Limiter[string]
	releaseA, err := l.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer releaseA()
	releaseB, err := l.Acquire(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	releaseB()
}

func TestWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter[string]
		release, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		release()
		release() // harmless: a second call must not let a third party in
		again, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Acquire(short, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the key is held twice: %v", err)
		}
		again()
	})
}

func TestLimitPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[string](3)
		var all sync.WaitGroup
		var holders, most atomic.Int32
		for range 20 {
			all.Go(func() {
				release, err := l.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				defer release()
				if n := holders.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Millisecond)
				holders.Add(-1)
			})
		}
		synctest.Wait()
		other, err := l.Acquire(t.Context(), "other")
		if err != nil {
			t.Error(err)
		}
		other()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("no time"))
		if _, err := l.Acquire(ctx, "k"); err == nil || err.Error() != "3 operations on k are in progress: no time" {
			t.Errorf("got %v, want the limit and the cause", err)
		}
		all.Wait()
		if n := most.Load(); n != 3 || l.Len() != 0 {
			t.Errorf("%d holders at once, and %d keys are kept", n, l.Len())
		}
	})
}
