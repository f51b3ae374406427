package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// copies are those that a test has between two servers.
type copies struct {
	*slots
	all []*fakeCopy
}

type fakeCopy struct {
	*slot
	moves   atomic.Int64
	working atomic.Bool
}

// start has n copies of a volume wait for their slots.
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

// move has the copies make progress, and pause afterwards.
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
		if len(c.of) != 0 {
			t.Errorf("left are %v", c.of)
		}
	})
}

func TestCopiesOfOneVolumeDoNotHoldUpAnothers(t *testing.T) {
	onSlots(t, func(ctx context.Context, c *copies) {
		many := c.start(ctx, "many", 100)
		other := c.start(ctx, "other", 2)
		if m, o := working(many), working(other); m != copiesAtATime || o != 0 {
			t.Errorf("%d and %d work", m, o)
		}
		// The first to end make room for the other volume, and not for their own.
		for _, f := range many[:2] {
			f.leave()
			f.working.Store(false)
			synctest.Wait()
		}
		if m, o := working(many), working(other); m != copiesAtATime-2 || o != 2 {
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
		if begun := working(many); begun != copiesAtATime || many[copiesAtATime].working.Load() {
			t.Errorf("%d work, and not those that came first", begun)
		}
		other := c.start(ctx, "other", 1)
		move(ctx, many)
		if m, o := working(many), working(other); m != copiesAtATime-1 || o != 1 {
			t.Errorf("%d and %d work", m, o)
		}
		other[0].leave()
		synctest.Wait()
		if m := working(many); m != copiesAtATime || many[copiesAtATime].working.Load() {
			t.Errorf("%d work; that which made room does not go on", m)
		}
		// One that has just begun is not interrupted.
		late := c.start(ctx, "late", 1)
		for _, f := range many[:copiesAtATime] {
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
		stuck := c.start(ctx, "stuck", copiesAtATime)
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
		// Those that go on have to wait again, for as many as there are too many.
		more := c.start(ctx, "more", copiesAtATime-1)
		if n := working(more); n != copiesAtATime-1 {
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
		if n := working(stuck); n != copiesAtATime-1 {
			t.Errorf("%d go on", n)
		}
	})
}

// However many are stuck, not more than so many hold memory and threads.
func TestCopiesThatHaveBegunAreBounded(t *testing.T) {
	onSlots(t, func(ctx context.Context, c *copies) {
		for i := range 100 {
			c.start(ctx, fmt.Sprint("volume-", i), 1)
		}
		time.Sleep(100 * stuckAfter)
		synctest.Wait()
		if n := working(c.all); n != copiesBegun {
			t.Errorf("%d have begun, want %d", n, copiesBegun)
		}
	})
}

// A tenant whose copies do not come to an end has the slots of others only as long as
// they make progress; who waits is told what for.
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
		for i := range copiesAtATime {
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
		l.copies.wg.Wait()
	})
}
