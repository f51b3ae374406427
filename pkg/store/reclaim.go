package store

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
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
	shares  Shares
	workers int
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	seen    map[volume.Export]bool
	running map[volume.Export]chan struct{} // a token wakes the goroutine
}

func newReclaimer(ctx context.Context, shares Shares, workers int) *reclaimer {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	return &reclaimer{
		shares: shares, workers: workers, ctx: ctx, stop: stop,
		seen: map[volume.Export]bool{}, running: map[volume.Export]chan struct{}{},
	}
}

func (r *reclaimer) close() {
	r.mu.Lock()
	r.stop()
	r.mu.Unlock()
	r.wg.Wait()
}

// resume begins with what an earlier process left, once per export.
func (r *reclaimer) resume(export volume.Export, options []string) {
	r.mu.Lock()
	first := !r.seen[export]
	r.seen[export] = true
	r.mu.Unlock()
	if first {
		r.kick(export, options)
	}
}

// kick says that there is trash on the export.
func (r *reclaimer) kick(export volume.Export, options []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	wake, ok := r.running[export]
	if !ok {
		wake = make(chan struct{}, 1)
		r.running[export] = wake
		r.wg.Go(func() { r.run(export, options, wake) })
	}
	select {
	case wake <- struct{}{}:
	default:
	}
}

// run makes a pass for every wake-up, and again after a failure, later each
// time, until there is nothing to do.
func (r *reclaimer) run(export volume.Export, options []string, wake chan struct{}) {
	log := klog.FromContext(r.ctx).WithValues("export", export.String())
	delay := reclaimRetryMin
	for !r.idle(export, wake) {
		removed, err := r.pass(export, options)
		if r.ctx.Err() != nil {
			return
		}
		if removed > 0 {
			log.V(2).Info("Reclaimed deleted volumes", "entries", removed)
		}
		if err == nil {
			delay = reclaimRetryMin
			continue
		}
		log.Error(err, "Could not reclaim deleted volumes", "retryIn", delay)
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-r.ctx.Done():
		}
		timer.Stop()
		delay = min(2*delay, reclaimRetryMax)
		r.kick(export, options)
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

// pass removes what is in the trash now, and what dead processes left in tmp.
func (r *reclaimer) pass(export volume.Export, options []string) (removed int64, err error) {
	h, err := r.shares.AcquireAny(r.ctx, export, options)
	if err != nil {
		return 0, err
	}
	defer h.Release()
	err = withCatalog(h, func(cat *catalog.Catalog) error {
		names, err := cat.Abandoned(time.Now(), abandonedAfter)
		if err != nil {
			return err
		}
		trash, err := fs.ReadDir(cat.Meta().FS(), catalog.TrashDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range trash {
			names = append(names, path.Join(catalog.TrashDir, e.Name()))
		}
		var failed error
		for _, name := range names {
			n, err := tree.Remove(r.ctx, cat.Meta(), name, r.workers)
			removed += n
			failed = errors.Join(failed, err)
		}
		return failed
	})
	return removed, remountStale(h, err)
}
