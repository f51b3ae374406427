package store

import (
	"context"
	"sync"
	"time"
)

// pace spreads what is done over time, evenly. The zero value does not.
type pace struct {
	interval time.Duration
	mu       sync.Mutex
	next     time.Time
}

func newPace(perSecond int) *pace {
	if perSecond <= 0 {
		return &pace{}
	}
	return &pace{interval: time.Second / time.Duration(perSecond)}
}

// wait until it is the caller's turn, or until ctx ends.
func (p *pace) wait(ctx context.Context) error {
	if p.interval == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(time.Until(p.turn(time.Now())))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pace) turn(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	mine := p.next
	p.next = mine.Add(p.interval)
	return mine
}
