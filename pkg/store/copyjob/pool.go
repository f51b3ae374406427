// Package copyjob runs copies as jobs. A job belongs to the process, not to the call
// that started it: it continues when the caller has gone, and the next call of the same
// kind waits for it. Jobs between two servers share a bounded number of slots.
package copyjob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

var (
	// ErrDeleted ends a job whose result was deleted before it was complete.
	ErrDeleted = fmt.Errorf("%w: it was deleted while it was being made", volume.ErrNotFound)

	errClosing  = errors.New("store: closing")
	errNotEnded = errors.New("it has not ended yet")
)

// Pool holds what the jobs of all kinds share. It is safe for concurrent use.
type Pool struct {
	exports *session.Exports
	slots   *slots
	ctx     context.Context // ends with Close
	stop    context.CancelCauseFunc
	jobs    sync.WaitGroup

	mu      sync.Mutex
	running map[*tree.Progress]struct{}
	sources map[session.Key]int // number of copies of each
}

// NewPool returns a Pool without jobs. Close it after use.
func NewPool(ctx context.Context, exports *session.Exports) *Pool {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	return &Pool{
		exports: exports, slots: newSlots(), ctx: ctx, stop: stop,
		running: map[*tree.Progress]struct{}{}, sources: map[session.Key]int{},
	}
}

// Close cancels all jobs and waits for them.
func (p *Pool) Close() {
	p.mu.Lock()
	p.stop(errClosing)
	p.mu.Unlock()
	p.Wait()
}

// Wait waits for all jobs.
func (p *Pool) Wait() { p.jobs.Wait() }

// Use marks k as the source of a copy until it is released.
func (p *Pool) Use(k session.Key) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sources[k]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.sources[k]--; p.sources[k] == 0 {
			delete(p.sources, k)
		}
	})
}

// Free returns volume.ErrInUse while k is the source of a copy.
func (p *Pool) Free(k session.Key) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sources[k] > 0 {
		return fmt.Errorf("%w: %s is being copied", volume.ErrInUse, k)
	}
	return nil
}

// Backlog returns how many copies run and how much they have left to copy, as far as
// known.
func (p *Pool) Backlog() (copies int, bytes, entries int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for progress := range p.running {
		b, n := progress.Left()
		bytes, entries = bytes+b, entries+n
	}
	return len(p.running), bytes, entries
}

// await waits until done is closed. The error is errNotEnded when ctx ends before, and
// volume.ErrUnreachable when one of the servers does not answer.
func (p *Pool) await(ctx context.Context, done <-chan struct{}, k session.Key, sources []volume.Export) error {
	again := time.NewTicker(session.AskAgain)
	defer again.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNotEnded, ctx.Err())
		case <-again.C:
			if err := p.exports.Answers(ctx, k, sources...); err != nil {
				return err
			}
		}
	}
}
