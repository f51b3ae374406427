package keylock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneHolderPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locker[string]
		var all sync.WaitGroup
		holders, done := 0, 0
		for range 50 {
			all.Go(func() {
				unlock, err := l.Lock(t.Context(), "k")
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
				unlock()
			})
		}
		all.Wait()
		if done != 50 {
			t.Errorf("%d of 50 got the lock", done)
		}
		if len(l.held) != 0 {
			t.Errorf("%d keys are kept after the last unlock", len(l.held))
		}
	})
}

func TestOtherKeysAreFree(t *testing.T) {
	var l Locker[string]
	unlockA, err := l.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer unlockA()
	unlockB, err := l.Lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	unlockB()
}

func TestWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locker[string]
		unlock, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Lock(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		unlock()
		unlock() // harmless: a second call must not let a third party in
		again, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Lock(short, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("lock held twice: %v", err)
		}
		again()
	})
}
