package reclaim

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// errSliceOver ends a slice.
var errSliceOver = errors.New("slice of time is over")

// slice of time for one tree. Stop its alarm after use.
type slice struct {
	first bool      // of the tree
	limit time.Time // while nothing was removed
	// alarm sets expired: reading the clock before every change would cost as much as
	// some changes do.
	alarm    *time.Timer
	expired  atomic.Bool
	progress atomic.Bool

	// waiting reports whether there may be new trees, serve gives them their first
	// slices, extend reports whether this tree may have another slice at once.
	waiting func() bool
	serve   func() error
	extend  func(now time.Time) bool

	mu sync.Mutex
}

func (s *slice) start(length, limit time.Duration) {
	s.limit = time.Now().Add(limit)
	s.alarm = time.AfterFunc(length, func() { s.expired.Store(true) })
}

// before is called before every change, concurrently. It pauses the removal while new
// trees get their first slices, since a removal that restarts lists again what is still
// there. It ends the slice when its time is over, unless no other tree is due.
func (s *slice) before(ctx context.Context, changes int64) error {
	if changes > 0 && !s.progress.Load() {
		s.progress.Store(true)
	}
	if !s.expired.Load() && (s.first || !s.waiting()) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.first && s.waiting() && ctx.Err() == nil {
		if err := s.serve(); err != nil {
			return err
		}
	}
	return s.over(time.Now())
}

// over returns errSliceOver if the slice ends now.
func (s *slice) over(now time.Time) error {
	if !s.expired.Load() || !s.progress.Load() && !now.After(s.limit) {
		return nil
	}
	if s.first || !s.extend(now) {
		return errSliceOver
	}
	s.expired.Store(false)
	s.alarm.Reset(fullSlice)
	return nil
}
