package store

import (
	"context"
	"fmt"
	"sync"
)

// callsAtATime is how many calls work on one server. A server that dies holds up
// as many threads, which nobody can take back, and not one more: who waits for a
// turn hears that the server is away.
const callsAtATime = 64

// turns let so many work at a time on each server.
type turns struct {
	limit int

	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	taken chan struct{}
	refs  int // who has one or waits, guarded by turns.mu
}

// take waits for a turn until ctx ends.
func (t *turns) take(ctx context.Context, server string) (release func(), err error) {
	mine := t.join(server)
	select {
	case mine.taken <- struct{}{}:
		return func() {
			<-mine.taken
			t.leave(server, mine)
		}, nil
	case <-ctx.Done():
		t.leave(server, mine)
		return nil, fmt.Errorf("%d are at work on %s already: %w", t.limit, server, context.Cause(ctx))
	}
}

func (t *turns) join(server string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*turn{}
	}
	mine := t.of[server]
	if mine == nil {
		mine = &turn{taken: make(chan struct{}, t.limit)}
		t.of[server] = mine
	}
	mine.refs++
	return mine
}

func (t *turns) leave(server string, mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.refs--; mine.refs == 0 {
		delete(t.of, server)
	}
}
