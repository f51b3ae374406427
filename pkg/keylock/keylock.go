// Package keylock locks by key. Unlike a map of mutexes it honours the caller's
// context while waiting and forgets keys that nobody holds.
package keylock

import (
	"context"
	"fmt"
	"sync"
)

// Locker hands out one lock per key. The zero value is ready to use.
type Locker[K comparable] struct {
	mu   sync.Mutex
	held map[K]*lock
}

type lock struct {
	free chan struct{} // holds one token while nobody has the lock
	refs int           // holder and waiters, guarded by Locker.mu
}

// Lock waits for the key until ctx ends. The returned function gives the lock
// back; calling it again does nothing. It may be called from any goroutine.
func (l *Locker[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	k := l.join(key)
	select {
	case <-k.free:
		return sync.OnceFunc(func() {
			k.free <- struct{}{}
			l.leave(key, k)
		}), nil
	case <-ctx.Done():
		l.leave(key, k)
		return nil, fmt.Errorf("another operation on %v is in progress: %w", key, context.Cause(ctx))
	}
}

func (l *Locker[K]) join(key K) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[K]*lock)
	}
	k := l.held[key]
	if k == nil {
		k = &lock{free: make(chan struct{}, 1)}
		k.free <- struct{}{}
		l.held[key] = k
	}
	k.refs++
	return k
}

func (l *Locker[K]) leave(key K, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.refs--; k.refs == 0 {
		delete(l.held, key)
	}
}
