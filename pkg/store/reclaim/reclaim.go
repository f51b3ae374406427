// Package reclaim empties the trash of exports in the background.
//
// The trash itself is the queue: the next process continues with what a dead one left
// there. What dead processes left in the catalog's tmp is moved to the trash first.
package reclaim

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	// AbandonedAfter is the age from which a temporary file counts as left by a dead
	// process; a live one, also of another controller, needs it for seconds.
	AbandonedAfter = time.Hour
	// debounce is how long no volume may be deleted before a pass begins: less than
	// anybody waits for space.
	debounce = 50 * time.Millisecond
	retryMin = time.Second
	retryMax = 5 * time.Minute
)

// Config of a Reclaimer.
type Config struct {
	Exports *session.Exports
	// Workers is how many directories of a deleted volume are emptied at a time.
	Workers int
	// Rate is how many entries are removed a second on each export, 0 for no limit.
	Rate int
	// Upkeep is called on each export before a tree that has had a slice gets its next
	// one, and when nothing is left. It returns early when waiting does.
	Upkeep func(ctx context.Context, x *session.Session, waiting func() bool)
	// Debounce and AbandonedAfter are 0 for the defaults, other than in tests.
	Debounce, AbandonedAfter time.Duration
}

// Reclaimer empties the trash of exports. Each export has a goroutine of its own while
// it has trash, so that a dead server delays no other.
type Reclaimer struct {
	cfg  Config
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	seen    map[volume.Export]bool
	running map[volume.Export]*worker
	backlog map[volume.Export]*Backlog
}

// worker empties the trash of one export.
type worker struct {
	wake    chan struct{} // a token wakes the goroutine
	options []string      // of the mount, from the last Kick; guarded by Reclaimer.mu
	queue   queue
}

// New checks the configuration. Close the Reclaimer after use.
func New(ctx context.Context, cfg Config) (*Reclaimer, error) {
	if cfg.Exports == nil || cfg.Upkeep == nil || cfg.Workers < 1 || cfg.Rate < 0 {
		return nil, errors.New("reclaim: exports, upkeep, at least one worker and a rate that is not negative are needed")
	}
	if cfg.Debounce == 0 {
		cfg.Debounce = debounce
	}
	if cfg.AbandonedAfter == 0 {
		cfg.AbandonedAfter = AbandonedAfter
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	return &Reclaimer{
		cfg: cfg, ctx: ctx, stop: stop,
		seen: map[volume.Export]bool{}, running: map[volume.Export]*worker{}, backlog: map[volume.Export]*Backlog{},
	}, nil
}

// Close stops reclaiming and waits for the removals under way.
func (r *Reclaimer) Close() {
	r.mu.Lock()
	r.stop()
	r.mu.Unlock()
	r.Wait()
}

// Wait waits until no export has anything left to reclaim.
func (r *Reclaimer) Wait() { r.wg.Wait() }

// Resume continues with what an earlier process left on the export, once per export.
func (r *Reclaimer) Resume(t session.Target) {
	r.mu.Lock()
	first := !r.seen[t.Key.Export]
	r.seen[t.Key.Export] = true
	r.mu.Unlock()
	if first {
		r.Kick(t)
	}
}

// Kick reports trash on the target's export, which can be mounted with its options.
func (r *Reclaimer) Kick(t session.Target) {
	export := t.Key.Export
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	w := r.running[export]
	if w == nil {
		w = &worker{wake: make(chan struct{}, 1)}
		r.running[export] = w
		r.wg.Go(func() { r.run(export, w) })
	}
	w.options = t.MountOptions
	w.requeue()
}

// waiting reports whether there may be new trash.
func (w *worker) waiting() bool { return len(w.wake) > 0 }

func (w *worker) requeue() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run makes a pass for every wake-up, after a failure (with backoff) and when a late
// tree is due, until nothing is left.
func (r *Reclaimer) run(export volume.Export, w *worker) {
	log := klog.FromContext(r.ctx).WithValues(logkeys.Export, export.String())
	backoff := retryMin
	for !r.idle(export, w.wake) {
		r.debounce(w.wake)
		removed, err := r.empty(export, w)
		if r.ctx.Err() != nil {
			return
		}
		if removed > 0 {
			log.V(2).Info("Reclaimed deleted volumes", logkeys.Entries, removed)
		}
		if err == nil {
			backoff = retryMin
			if due, ok := w.queue.due(); ok {
				r.wait(time.Until(due), w.wake)
				w.requeue()
			}
			continue
		}
		log.Error(err, "Failed to reclaim deleted volumes", logkeys.RetryIn, backoff)
		r.wait(retryMin, nil)
		// A deletion shows that the export can be used again.
		r.wait(backoff-retryMin, w.wake)
		backoff = min(2*backoff, retryMax)
		w.requeue()
	}
}

func (r *Reclaimer) wait(delay time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-r.ctx.Done():
	}
}

// debounce waits until deletions pause, 20 times as long at most: the callers are
// answered first, and one pass removes what they deleted.
func (r *Reclaimer) debounce(wake chan struct{}) {
	enough := time.NewTimer(20 * r.cfg.Debounce)
	defer enough.Stop()
	for {
		quiet := time.NewTimer(r.cfg.Debounce)
		select {
		case <-wake:
			quiet.Stop()
		case <-quiet.C:
			return
		case <-enough.C:
			quiet.Stop()
			return
		case <-r.ctx.Done():
			quiet.Stop()
			return
		}
	}
}

// idle consumes a wake-up; without one the export's goroutine is to end.
func (r *Reclaimer) idle(export volume.Export, wake chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-wake:
		return r.ctx.Err() != nil
	default:
		delete(r.running, export)
		return true
	}
}
