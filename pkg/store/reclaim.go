package store

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	// reclaimAfter is how long a deletion is followed by nothing: less than anybody
	// waits for space.
	reclaimAfter    = 50 * time.Millisecond
	reclaimRetryMin = time.Second
	reclaimRetryMax = 5 * time.Minute
	// abandonedAfter is when a temporary file counts as left by a dead process;
	// a live one, also of another controller, needs it for seconds.
	abandonedAfter = time.Hour
)

// reclaimer empties the trash of exports. The trash itself is the queue: what a
// process leaves there, the next one finds. Each export has a goroutine of its
// own while it has trash, so that a dead server holds up no other.
type reclaimer struct {
	exports *session.Exports
	workers int
	rate    int // entries a second on each export, 0 for no limit
	after   time.Duration
	// abandoned is abandonedAfter, other than in tests.
	abandoned time.Duration
	ctx       context.Context
	stop      context.CancelFunc
	wg        sync.WaitGroup
	// upkeep is called on each export when nothing new is to be removed, until something
	// is.
	upkeep func(ctx context.Context, x *session.Session, waiting func() bool)

	mu      sync.Mutex
	seen    map[volume.Export]bool
	running map[volume.Export]*reclaiming
	backlog map[volume.Export]*Backlog
}

// reclaiming is the work on one export.
type reclaiming struct {
	wake    chan struct{} // a token wakes the goroutine
	options []string      // of the mount, as they were said last, guarded by reclaimer.mu
	queue   queue
}

func newReclaimer(ctx context.Context, exports *session.Exports, workers, rate int) *reclaimer {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	return &reclaimer{
		exports: exports, workers: workers, rate: rate, after: reclaimAfter, abandoned: abandonedAfter, ctx: ctx, stop: stop,
		seen: map[volume.Export]bool{}, running: map[volume.Export]*reclaiming{}, backlog: map[volume.Export]*Backlog{},
	}
}

func (r *reclaimer) close() {
	r.mu.Lock()
	r.stop()
	r.mu.Unlock()
	r.wg.Wait()
}

// resume begins with what an earlier process left, once per export.
func (r *reclaimer) resume(t session.Target) {
	r.mu.Lock()
	first := !r.seen[t.Key.Export]
	r.seen[t.Key.Export] = true
	r.mu.Unlock()
	if first {
		r.kick(t)
	}
}

// kick says that there is trash on the export, which can be mounted with the options.
func (r *reclaimer) kick(t session.Target) {
	export, options := t.Key.Export, t.MountOptions
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	work := r.running[export]
	if work == nil {
		work = &reclaiming{wake: make(chan struct{}, 1)}
		r.running[export] = work
		r.wg.Go(func() { r.run(export, work) })
	}
	work.options = options
	work.again()
}

// waiting tells whether there may be something new to remove.
func (w *reclaiming) waiting() bool { return len(w.wake) > 0 }

func (w *reclaiming) again() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run makes a pass for every wake-up, and again after a failure, later each
// time, and for what is late, until there is nothing to do.
func (r *reclaimer) run(export volume.Export, work *reclaiming) {
	log := klog.FromContext(r.ctx).WithValues("export", export.String())
	delay := reclaimRetryMin
	for !r.idle(export, work.wake) {
		r.lull(work.wake)
		removed, err := r.empty(export, work)
		if r.ctx.Err() != nil {
			return
		}
		if removed > 0 {
			log.V(2).Info("Reclaimed deleted volumes", "entries", removed)
		}
		if err == nil {
			delay = reclaimRetryMin
			if due, ok := work.queue.due(); ok {
				r.wait(time.Until(due), work.wake)
				work.again()
			}
			continue
		}
		log.Error(err, "Could not reclaim deleted volumes", "retryIn", delay)
		r.wait(reclaimRetryMin, nil)
		// Whoever deletes a volume could use the export.
		r.wait(delay-reclaimRetryMin, work.wake)
		delay = min(2*delay, reclaimRetryMax)
		work.again()
	}
}

func (r *reclaimer) wait(delay time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-r.ctx.Done():
	}
}

// lull waits until no more volumes are deleted, or not for long: those who delete
// them are answered first, and what they leave is removed in one pass.
func (r *reclaimer) lull(wake chan struct{}) {
	enough := time.NewTimer(20 * r.after)
	defer enough.Stop()
	for {
		quiet := time.NewTimer(r.after)
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

// idle takes a wake-up, or ends the goroutine's time when there is none.
func (r *reclaimer) idle(export volume.Export, wake chan struct{}) bool {
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
