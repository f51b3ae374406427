package nfsmount

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
)

// errNoAnswer: a system call has not returned in time.
var errNoAnswer = errors.New("system call has not returned")

// flights runs system calls that a dead server can block, and stops waiting for
// them. The same call is not made again before it has returned: further callers join
// the wait, so retries cost no threads. The zero value is ready to use.
type flights[T any] struct{ group singleflight.Group }

// do makes or joins the call, and waits for it for d or until ctx ends. A call
// outlives its callers, so it must not depend on the context of one of them.
func (f *flights[T]) do(ctx context.Context, what string, d time.Duration, call func() (T, error)) (none T, err error) {
	returned := f.group.DoChan(what, func() (any, error) { return call() })
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case r := <-returned:
		return r.Val.(T), r.Err
	case <-timer.C:
		return none, fmt.Errorf("%s: %w within %s", what, errNoAnswer, d)
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w: %w", what, errNoAnswer, ctx.Err())
	}
}
