package share

import (
	"context"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// fresh is how long an answer of a server is reused, so that a burst of calls does not
// repeat the question.
const fresh = time.Second

// answer is how the server behind a mount last answered.
type answer struct {
	at   time.Time
	took time.Duration
	err  error
}

// ask makes sure that the server of a ready mount answers, unless it just did. Work on
// a mount without asking first would block a thread for as long as the server is down.
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
		return err // tells nothing about the server
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.last = answer{at: time.Now(), took: time.Since(began), err: err}
	return err
}

// Answers asks the server of a mounted export whether it is up. An export that is not
// mounted succeeds: mounting it will tell.
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
	// Answered tells whether the server answered the last question, and Took how long
	// it took to answer or to time out.
	Answered bool
	Took     time.Duration
}

// States lists the mounts. An export that is mounted with several sets of options is
// listed once for each.
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
