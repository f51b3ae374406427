// Package reclaim empties the trash of exports in the background.
//
// The trash itself is the queue: the next process continues with what a dead one left
// there. What dead processes left in the catalog's tmp is moved to the trash first.
package reclaim

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// retryMin and retryMax bound the backoff after a pass that failed.
const (
	retryMin = time.Second
	retryMax = 5 * time.Minute
)

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

	backlogs
}

// worker empties the trash of one export.
type worker struct {
	wakeup  wakeup
	options []string // of the mount, from the last Kick; guarded by Reclaimer.mu
	queue   queue
}

// New checks the configuration. Close the Reclaimer after use.
func New(ctx context.Context, cfg Config) (*Reclaimer, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	return &Reclaimer{
		cfg: cfg, ctx: ctx, stop: stop,
		seen: map[volume.Export]bool{}, running: map[volume.Export]*worker{},
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
		w = &worker{wakeup: newWakeup()}
		r.running[export] = w
		r.wg.Go(func() { r.run(export, w) })
	}
	w.options = t.MountOptions
	w.wakeup.request()
}

// run makes a pass for every wakeup, after a failure (with backoff) and when a late
// tree is due, until nothing is left.
func (r *Reclaimer) run(export volume.Export, w *worker) {
	log := klog.FromContext(r.ctx).WithValues(logkeys.Export, export.String())
	backoff := retryMin
	for !r.idle(export, w.wakeup) {
		r.debounce(w.wakeup)
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
				r.wait(time.Until(due), w.wakeup)
				w.wakeup.request()
			}
			continue
		}
		log.Error(err, "Failed to reclaim deleted volumes", logkeys.RetryIn, backoff)
		r.wait(retryMin, nil)
		// A deletion shows that the export can be used again.
		r.wait(backoff-retryMin, w.wakeup)
		backoff = min(2*backoff, retryMax)
		w.wakeup.request()
	}
}

func (r *Reclaimer) wait(delay time.Duration, wakeup wakeup) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wakeup:
	case <-r.ctx.Done():
	}
}

// debounce waits until deletions pause, 20 times as long at most: the callers are
// answered first, and one pass removes what they deleted.
func (r *Reclaimer) debounce(wakeup wakeup) {
	enough := time.NewTimer(20 * r.cfg.Debounce)
	defer enough.Stop()
	for {
		quiet := time.NewTimer(r.cfg.Debounce)
		select {
		case <-wakeup:
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

// idle consumes a wakeup; without one the export's goroutine is to end.
func (r *Reclaimer) idle(export volume.Export, wakeup wakeup) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wakeup.consume() {
		return r.ctx.Err() != nil
	}
	delete(r.running, export)
	return true
}

// empty makes a pass over the export's trash.
func (r *Reclaimer) empty(export volume.Export, w *worker) (removed int64, err error) {
	r.mu.Lock()
	options := w.options
	r.mu.Unlock()
	p := &pass{cfg: r.cfg, queue: &w.queue, wakeup: w.wakeup, backlogs: &r.backlogs, pace: newPace(r.cfg.Rate)}
	t := session.Target{Key: session.Key{Export: export}, MountOptions: options}
	err = r.cfg.Exports.Visit(r.ctx, t, p.run)
	return p.removed, err
}
