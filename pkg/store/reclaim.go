package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
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
	shares  Shares
	workers int
	rate    int // entries a second on each export, 0 for no limit
	after   time.Duration
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
	// upkeep is called on each export after a pass.
	upkeep func(ctx context.Context, export volume.Export, root *os.Root, cat *catalog.Catalog)

	mu      sync.Mutex
	seen    map[volume.Export]bool
	running map[volume.Export]*reclaiming
	backlog map[volume.Export]*Backlog
}

// reclaiming is the work on one export.
type reclaiming struct {
	wake    chan struct{} // a token wakes the goroutine
	options []string      // of the mount, as they were said last
}

// Backlog is what is left of deleted volumes on an export, as far as it is known:
// how much is in a directory shows when it is being removed.
type Backlog struct {
	Export volume.Export
	// Trees are deleted volumes, and what dead processes left, at the last look.
	Trees int64
	// Entries are files and directories that have been found and not removed yet.
	Entries int64
	// Removed since the start.
	Removed int64
}

// Backlog of every export that was looked at.
func (s *Store) Backlog() []Backlog {
	s.reclaim.mu.Lock()
	defer s.reclaim.mu.Unlock()
	var all []Backlog
	for _, b := range s.reclaim.backlog {
		all = append(all, *b)
	}
	return all
}

// count changes the backlog of an export.
func (r *reclaimer) count(export volume.Export, change func(*Backlog)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.backlog[export]
	if b == nil {
		b = &Backlog{Export: export}
		r.backlog[export] = b
	}
	change(b)
}

func newReclaimer(ctx context.Context, shares Shares, workers, rate int) *reclaimer {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	return &reclaimer{
		shares: shares, workers: workers, rate: rate, after: reclaimAfter, ctx: ctx, stop: stop,
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
func (r *reclaimer) resume(export volume.Export, options []string) {
	r.mu.Lock()
	first := !r.seen[export]
	r.seen[export] = true
	r.mu.Unlock()
	if first {
		r.kick(export, options)
	}
}

// kick says that there is trash on the export, which can be mounted with the options.
func (r *reclaimer) kick(export volume.Export, options []string) {
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

func (w *reclaiming) again() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run makes a pass for every wake-up, and again after a failure, later each
// time, until there is nothing to do.
func (r *reclaimer) run(export volume.Export, work *reclaiming) {
	log := klog.FromContext(r.ctx).WithValues("export", export.String())
	delay := reclaimRetryMin
	for !r.idle(export, work.wake) {
		r.lull(work.wake)
		removed, err := r.pass(export, work)
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

// pass removes what is in the trash now, and what dead processes left in tmp.
func (r *reclaimer) pass(export volume.Export, work *reclaiming) (removed int64, err error) {
	r.mu.Lock()
	options := work.options
	r.mu.Unlock()
	h, err := r.shares.AcquireAny(r.ctx, export, options)
	if err != nil {
		return 0, err
	}
	defer h.Release()
	err = withRecords(h, func(cat *catalog.Catalog) error {
		if cat == nil { // nothing was ever deleted here
			return nil
		}
		names, failed := endAbandoned(r.ctx, h.Root(), cat, time.Now())
		trash, err := fs.ReadDir(cat.Meta().FS(), catalog.TrashDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range trash {
			names = append(names, path.Join(catalog.TrashDir, e.Name()))
		}
		removed, err = r.removeAll(export, cat, names)
		r.upkeep(r.ctx, export, h.Root(), cat)
		return errors.Join(failed, err)
	})
	return removed, remountStale(h, err)
}

func (r *reclaimer) removeAll(export volume.Export, cat *catalog.Catalog, names []string) (removed int64, failed error) {
	pace := newPace(r.rate)
	removal := tree.Removal{
		Workers: r.workers,
		Before:  func(ctx context.Context, _ int64) error { return pace.wait(ctx) },
		Found:   func(n int64) { r.count(export, func(b *Backlog) { b.Entries += n }) },
	}
	r.count(export, func(b *Backlog) { b.Trees = int64(len(names)) })
	for _, name := range names {
		n, err := r.removeOne(removal, cat, name)
		removed += n
		failed = errors.Join(failed, err)
		r.count(export, func(b *Backlog) {
			b.Removed += n
			if err == nil {
				b.Trees--
			}
		})
	}
	return removed, failed
}

func (r *reclaimer) removeOne(removal tree.Removal, cat *catalog.Catalog, name string) (int64, error) {
	dir, err := cat.Meta().Open(path.Dir(name))
	if err != nil {
		return 0, err
	}
	defer dir.Close() //nolint:errcheck // only read
	return removal.Remove(r.ctx, dir, path.Base(name))
}
