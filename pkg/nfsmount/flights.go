package nfsmount

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errNoAnswer: a system call has not come back in its time.
var errNoAnswer = errors.New("system call has not returned")

// flights runs system calls that a dead server can block, and stops waiting for
// them. Until a call has come back the same call is not made again: who asks for
// it joins the wait, so retries cost no threads. The zero value is ready to use.
type flights[T any] struct {
	mu    sync.Mutex
	calls map[string]*flight[T] // by what is called
}

// flight is a call that has not come back; value and err count once done is closed.
type flight[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// do makes or joins the call and waits for it for d, or until ctx ends.
func (f *flights[T]) do(ctx context.Context, what string, d time.Duration, call func() (T, error)) (none T, err error) {
	c := f.join(what, call)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.value, c.err
	case <-timer.C:
		return none, fmt.Errorf("%s: %w within %s", what, errNoAnswer, d)
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w: %w", what, errNoAnswer, ctx.Err())
	}
}

func (f *flights[T]) join(what string, call func() (T, error)) *flight[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.calls[what]
	if c != nil {
		return c
	}
	if f.calls == nil {
		f.calls = map[string]*flight[T]{}
	}
	c = &flight[T]{done: make(chan struct{})}
	f.calls[what] = c
	go func() {
		c.value, c.err = call()
		f.mu.Lock()
		delete(f.calls, what)
		f.mu.Unlock()
		close(c.done)
	}()
	return c
}
