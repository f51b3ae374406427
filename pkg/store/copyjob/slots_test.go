package copyjob

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// copies of a test between two servers.
type copies struct {
	*slots
	all []*fakeCopy
}

type fakeCopy struct {
	*slot
	moves   atomic.Int64
	working atomic.Bool
}

// start queues n copies of a volume.
func (c *copies) start(ctx context.Context, volume string, n int) (started []*fakeCopy) {
	for range n {
		f := &fakeCopy{}
		f.slot = c.join("a to b", volume, f.moves.Load)
		go f.to(ctx, f.wait)
		started = append(started, f)
	}
	synctest.Wait()
	c.all = append(c.all, started...)
	return started
}

func (f *fakeCopy) to(ctx context.Context, wait func(context.Context) error) {
	f.working.Store(false)
	if wait(ctx) == nil {
		f.working.Store(true)
	}
}

// move makes the copies progress and then pause.
func move(ctx context.Context, list []*fakeCopy) {
	for _, f := range list {
		if f.working.Load() {
			f.moves.Add(1)
			go f.to(ctx, f.pause)
		}
	}
	synctest.Wait()
}

func working(list []*fakeCopy) (n int) {
	for _, f := range list {
		if f.working.Load() {
			n++
		}
	}
	return n
}

func onSlots(t *testing.T, test func(ctx context.Context, c *copies)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		c := &copies{slots: newSlots()}
		test(ctx, c)
		stop()
		synctest.Wait()
		for _, f := range c.all {
			f.leave()
		}
		if len(c.routes) != 0 {
			t.Errorf("left are %v", c.routes)
		}
	})
}

func TestCopiesOfOneVolumeDoNotHoldUpAnothers(t *testing.T) {
	onSlots(t, func(ctx context.Context, c *copies) {
		many := c.start(ctx, "many", 100)
		other := c.start(ctx, "other", 2)
		if m, o := working(many), working(other); m != MaxActive || o != 0 {
			t.Errorf("%d and %d work", m, o)
		}
		// The first that end make room for the other volume, not for their own.
		for _, f := range many[:2] {
			f.leave()
			f.working.Store(false)
			synctest.Wait()
		}
		if m, o := working(many), working(other); m != MaxActive-2 || o != 2 {
			t.Errorf("%d and %d work", m, o)
		}
	})
}

func TestLongCopiesMakeRoom(t *testing.T) {
	onSlots(t, func(ctx context.Context, c *copies) {
		many := c.start(ctx, "many", 20)
		for range 100 {
			time.Sleep(time.Second)
			move(ctx, many)
		}
		if begun := working(many); begun != MaxActive || many[MaxActive].working.Load() {
			t.Errorf("%d work, and not those that came first", begun)
		}
		other := c.start(ctx, "other", 1)
		move(ctx, many)
		if m, o := working(many), working(other); m != MaxActive-1 || o != 1 {
			t.Errorf("%d and %d work", m, o)
		}
		other[0].leave()
		synctest.Wait()
		if m := working(many); m != MaxActive || many[MaxActive].working.Load() {
			t.Errorf("%d work; that which made room does not go on", m)
		}
		// A copy that has just started is not interrupted.
		late := c.start(ctx, "late", 1)
		for _, f := range many[:MaxActive] {
			f.slots.mu.Lock()
			f.since = time.Now()
			f.slots.mu.Unlock()
		}
		if move(ctx, many); working(late) != 0 {
			t.Error("a copy was interrupted at once")
		}
	})
}

func TestStuckCopiesLendTheirSlots(t *testing.T) {
	onSlots(t, func(ctx context.Context, c *copies) {
		stuck := c.start(ctx, "stuck", MaxActive)
		other := c.start(ctx, "other", 1)
		for range 10 {
			time.Sleep(stuckAfter / 2)
			for _, f := range stuck {
				f.moves.Add(1)
			}
		}
		if working(other) != 0 {
			t.Error("copies that made progress have lost a slot")
		}
		time.Sleep(2 * stuckAfter)
		synctest.Wait()
		if working(other) != 1 {
			t.Error("copies without progress keep all slots")
		}
		// Copies that continue wait again while more than MaxActive are active.
		more := c.start(ctx, "more", MaxActive-1)
		if n := working(more); n != MaxActive-1 {
			t.Errorf("%d more work", n)
		}
		move(ctx, stuck)
		if n := working(stuck); n != 0 {
			t.Errorf("%d go on without a slot", n)
		}
		for _, f := range more {
			f.leave()
		}
		synctest.Wait()
		if n := working(stuck); n != MaxActive-1 {
			t.Errorf("%d go on", n)
		}
	})
}

// However many are stuck, at most maxStarted hold memory and threads.
func TestCopiesThatHaveBegunAreBounded(t *testing.T) {
	onSlots(t, func(ctx context.Context, c *copies) {
		for i := range 100 {
			c.start(ctx, fmt.Sprint("volume-", i), 1)
		}
		time.Sleep(100 * stuckAfter)
		synctest.Wait()
		if n := working(c.all); n != maxStarted {
			t.Errorf("%d have begun, want %d", n, maxStarted)
		}
	})
}
