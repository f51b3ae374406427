package session

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/keyed"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	// CallsAtATime limits the concurrent jobs of calls per server. A dead server blocks at
	// most that many threads; further callers fail with volume.ErrUnreachable.
	CallsAtATime = 64
	// AskAgain is how often a caller waiting for a job checks that the server answers.
	AskAgain = 3 * time.Second
	// serverTick is the coarsest resolution of a Linux server's clock, at 100 Hz.
	serverTick = 10 * time.Millisecond
)

// Shares is the part of share.Cache that sessions use.
type Shares interface {
	Acquire(ctx context.Context, export volume.Export, options []string) (*share.Handle, error)
	AcquireAny(ctx context.Context, export volume.Export, fallback []string) (*share.Handle, error)
	Answers(ctx context.Context, export volume.Export) error
}

// Target of a session: what to lock and how to mount it.
type Target struct {
	Key Key
	// MountOptions of the export. An existing mount is used whatever its options, unless
	// Exact is set.
	MountOptions []string
	Exact        bool
}

// Config of Exports.
type Config struct {
	Shares Shares
	// Opened is called whenever a target's export was acquired.
	Opened func(Target)
	// Step is called with the name of each step that changes an export, before it. An error
	// ends the job.
	Step func(ctx context.Context, name string) error
}

// Exports opens sessions.
type Exports struct {
	cfg   Config
	locks keyed.Limiter[Key]
	calls *keyed.Limiter[string] // by server
	jobs  sync.WaitGroup
}

// New returns Exports. Call Wait after use.
func New(cfg Config) *Exports {
	return &Exports{cfg: cfg, calls: keyed.NewLimiter[string](CallsAtATime)}
}

// Go runs a job of a call in a goroutine that Wait waits for.
func (e *Exports) Go(job func()) { e.jobs.Go(job) }

// Wait waits for all jobs.
func (e *Exports) Wait() { e.jobs.Wait() }

// Busy is the number of servers with active or waiting jobs.
func (e *Exports) Busy() int { return e.calls.Len() }

// Do runs job on an open catalog, holding the lock of the target's key. A server that
// stops answering blocks the job and this lock, but not the caller, who gets an error when
// ctx ends or the server is found not to answer.
//
// Errors in addition to those of job: volume.ErrUnreachable, volume.ErrStale, those of
// share.Cache and catalog.Open.
func (e *Exports) Do(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	return e.On(ctx, t, openedBy((*Session).Open, job))
}

// View is Do for a job that only reads: it does not create a catalog.
func (e *Exports) View(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	return e.On(ctx, t, openedBy((*Session).Look, job))
}

// Result is a method of Exports, run, for a job with a result.
func Result[T any](ctx context.Context, run func(context.Context, Target, func(context.Context, *Session) error) error,
	t Target, job func(context.Context, *Session) (T, error),
) (value T, err error) {
	results := make(chan T, 1)
	err = run(ctx, t, func(ctx context.Context, s *Session) error {
		v, err := job(ctx, s)
		if err == nil { // at most once: only failed jobs are retried
			results <- v
		}
		return err
	})
	if err != nil {
		return value, err
	}
	return <-results, nil
}

// openedBy returns a job that calls open before job.
func openedBy(open func(*Session) error, job func(context.Context, *Session) error) func(context.Context, *Session) error {
	return func(ctx context.Context, s *Session) error {
		if err := open(s); err != nil {
			return err
		}
		return job(ctx, s)
	}
}

// On is Do for a job that opens the catalog itself, or needs none.
func (e *Exports) On(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	// Callers blocked by a hung job fail fast with the reason.
	if err := e.Answers(ctx, t.Key); err != nil {
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	e.jobs.Go(func() {
		unlock, err := e.locks.Acquire(waiting, t.Key)
		if err != nil {
			done <- err
			return
		}
		defer unlock()
		release, err := e.calls.Acquire(waiting, t.Key.Export.Server)
		if err != nil {
			done <- err
			return
		}
		defer release()
		done <- Recover(ctx, func() error { return e.retryStale(ctx, t, job) })
	})
	check := time.NewTicker(AskAgain)
	defer check.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s: gave up waiting for the server: %w", t.Key, ctx.Err())
		case <-check.C:
			if err := e.Answers(ctx, t.Key); err != nil {
				return err
			}
		}
	}
}

// DoInJob is Do for a caller in a goroutine of its own: it blocks until the server answers
// again.
func (e *Exports) DoInJob(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	return e.inJob(ctx, t, openedBy((*Session).Open, job))
}

func (e *Exports) inJob(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	unlock, err := e.locks.Acquire(ctx, t.Key)
	if err != nil {
		return err
	}
	defer unlock()
	return e.retryStale(ctx, t, job)
}

// Visit is View for background work: without a lock and without a retry.
func (e *Exports) Visit(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	return e.visit(ctx, t, openedBy((*Session).Look, job))
}

// Hold opens a session that the caller releases.
func (e *Exports) Hold(ctx context.Context, t Target) (s *Session, release func(), err error) {
	acquire := e.cfg.Shares.AcquireAny
	if t.Exact {
		acquire = e.cfg.Shares.Acquire
	}
	h, err := acquire(ctx, t.Key.Export, t.MountOptions)
	if err != nil {
		return nil, nil, err
	}
	e.cfg.Opened(t)
	return &Session{Key: t.Key, Root: h.Root(), handle: h, exports: e}, h.Release, nil
}

// Answers returns volume.ErrUnreachable when the key's export or one of others is mounted
// and its server does not answer.
func (e *Exports) Answers(ctx context.Context, k Key, others ...volume.Export) error {
	for _, export := range slices.Concat([]volume.Export{k.Export}, others) {
		if err := e.cfg.Shares.Answers(ctx, export); errors.Is(err, volume.ErrUnreachable) {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

// Recover turns a panic into an error, in goroutines where the gRPC interceptor cannot.
func Recover(ctx context.Context, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			klog.FromContext(ctx).Error(err, "A call panicked", logkeys.Stack, string(debug.Stack()))
		}
	}()
	return do()
}

// retryStale retries job on ESTALE, when the export was remounted or another controller
// removed what was open: first at once, then after a few ticks of the server's clock, as an
// NFSv3 client does not see two changes within one tick.
func (e *Exports) retryStale(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	err := e.visit(ctx, t, job)
	for _, pause := range [...]time.Duration{0, serverTick, 3 * serverTick} {
		if !errors.Is(err, unix.ESTALE) {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		err = e.visit(ctx, t, job)
	}
	return err
}

func (e *Exports) visit(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	s, release, err := e.Hold(ctx, t)
	if err != nil {
		return err
	}
	defer release()
	return s.remountStale(explain(s.Root, job(ctx, s)))
}
