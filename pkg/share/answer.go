package share

import (
	"context"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// fresh is how long an answer of a server counts, so that a burst of calls does
// not ask it each time.
const fresh = time.Second

// answer is how the server behind a mount last answered.
type answer struct {
	at   time.Time
	took time.Duration
	err  error
}

// ask has the server of a ready mount answer, unless it did just now. Who works
// on a mount without asking waits with a thread of its own for as long as the
// server is away.
func (c *Cache) ask(ctx context.Context, e *entry) error {
	c.mu.Lock()
	last := e.last
	c.mu.Unlock()
	if last.err == nil && !last.at.IsZero() && time.Since(last.at) < fresh {
		return nil
	}
	began := time.Now()
	_, err := c.cfg.Mounter.Usage(ctx, e.table)
	if ctx.Err() != nil {
		return err // says nothing about the server
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.last = answer{at: time.Now(), took: time.Since(began), err: err}
	return err
}

// Answers asks the server of an export that is mounted whether it is there. An
// export that is not mounted answers when it is.
func (c *Cache) Answers(ctx context.Context, export volume.Export) error {
	c.mu.Lock()
	e := c.mountedOf(export)
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	return c.ask(ctx, e)
}

// State of one mounted export.
type State struct {
	Export volume.Export
	// Uses are the handles that have not been released.
	Uses int
	// Answered says whether the server answered when it was last asked, and Took
	// after what time it did, or was given up.
	Answered bool
	Took     time.Duration
}

// States lists what is mounted. An export that is mounted with several sets of
// options is there as often.
func (c *Cache) States() []State {
	c.mu.Lock()
	defer c.mu.Unlock()
	var states []State
	for _, e := range c.entries {
		select {
		case <-e.ready:
			states = append(states, State{Export: e.export, Uses: e.refs, Answered: e.last.err == nil, Took: e.last.took})
		default:
		}
	}
	return states
}
