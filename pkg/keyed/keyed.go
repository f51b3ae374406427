// Package keyed limits by key how many callers do something at a time. Unlike a map
// of mutexes it honours the caller's context while waiting and forgets keys that
// nobody holds.
package keyed

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Limiter lets a number of callers at a time hold each key. The zero value lets one:
// it locks by key.
type Limiter[K comparable] struct {
	limit int // 0 is 1

	mu   sync.Mutex
	keys map[K]*entry
}

type entry struct {
	sem  *semaphore.Weighted
	refs int // holders and waiters, guarded by Limiter.mu
}

// NewLimiter returns a Limiter that lets limit callers hold a key.
func NewLimiter[K comparable](limit int) *Limiter[K] { return &Limiter[K]{limit: limit} }

// Acquire waits for the key until ctx ends. The returned function gives it back;
// calling it again does nothing. It may be called from any goroutine.
func (l *Limiter[K]) Acquire(ctx context.Context, key K) (release func(), err error) {
	e := l.join(key)
	if e.sem.Acquire(ctx, 1) != nil {
		l.leave(key, e)
		if limit := l.perKey(); limit > 1 {
			return nil, fmt.Errorf("%d operations on %v are in progress: %w", limit, key, context.Cause(ctx))
		}
		return nil, fmt.Errorf("another operation on %v is in progress: %w", key, context.Cause(ctx))
	}
	return sync.OnceFunc(func() {
		e.sem.Release(1)
		l.leave(key, e)
	}), nil
}

// Len returns how many keys are held or waited for.
func (l *Limiter[K]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys)
}

func (l *Limiter[K]) perKey() int { return max(l.limit, 1) }

func (l *Limiter[K]) join(key K) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		l.keys = make(map[K]*entry)
	}
	e := l.keys[key]
	if e == nil {
		e = &entry{sem: semaphore.NewWeighted(int64(l.perKey()))}
		l.keys[key] = e
	}
	e.refs++
	return e
}

func (l *Limiter[K]) leave(key K, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.refs--; e.refs == 0 {
		delete(l.keys, key)
	}
}
