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
	// CallsAtATime is how many jobs of calls work on one server. A server that dies
	// blocks at most that many threads, which cannot be taken back; further callers
	// fail with volume.ErrUnreachable.
	CallsAtATime = 64
	// AskAgain is how often a caller who waits for a job asks whether the server is
	// still there.
	AskAgain = 3 * time.Second
	// serverTick is the longest that a Linux server's clock stands still, at 100 Hz.
	serverTick = 10 * time.Millisecond
)

// Shares is what sessions need of share.Cache.
type Shares interface {
	Acquire(ctx context.Context, export volume.Export, options []string) (*share.Handle, error)
	AcquireAny(ctx context.Context, export volume.Export, fallback []string) (*share.Handle, error)
	Answers(ctx context.Context, export volume.Export) error
}

// Target is what a session is opened for.
type Target struct {
	Key Key
	// MountOptions of the export. One that is mounted already is used as it is, unless
	// Exact is set.
	MountOptions []string
	Exact        bool
}

// Config of Exports.
type Config struct {
	Shares Shares
	// Opened is called whenever a target's export has been mounted or was so already.
	Opened func(Target)
	// Step is called before each step that changes an export, by name. An error ends
	// the job.
	Step func(ctx context.Context, name string) error
}

// Exports opens sessions.
type Exports struct {
	cfg   Config
	locks keyed.Limiter[Key]
	calls *keyed.Limiter[string] // by server
	jobs  sync.WaitGroup
}

// New returns Exports. Wait for them after use.
func New(cfg Config) *Exports {
	return &Exports{cfg: cfg, calls: keyed.NewLimiter[string](CallsAtATime)}
}

// Go runs a job of a call in a goroutine that Wait waits for.
func (e *Exports) Go(job func()) { e.jobs.Go(job) }

// Wait waits for all jobs.
func (e *Exports) Wait() { e.jobs.Wait() }

// Busy is the number of servers on which calls are at work.
func (e *Exports) Busy() int { return e.calls.Len() }

// Do runs job on an open catalog, alone on the target's key. A server that stops
// answering blocks the job and the lock of this one key; the caller is let go when ctx
// ends or the server turns out not to answer.
//
// Errors besides those of job: volume.ErrUnreachable, volume.ErrStale, those of
// share.Cache and catalog.Open.
func (e *Exports) Do(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	return e.On(ctx, t, opened((*Session).Open, job))
}

// View is Do for a job that only reads: it makes no catalog where there is none.
func (e *Exports) View(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	return e.On(ctx, t, opened((*Session).Look, job))
}

// Do is Exports.Do for a job that has a result.
func Do[T any](ctx context.Context, e *Exports, t Target, job func(context.Context, *Session) (T, error)) (T, error) {
	return result(ctx, e.Do, t, job)
}

// View is Exports.View for a job that has a result.
func View[T any](ctx context.Context, e *Exports, t Target, job func(context.Context, *Session) (T, error)) (T, error) {
	return result(ctx, e.View, t, job)
}

// DoInJob is Exports.DoInJob for a job that has a result.
func DoInJob[T any](ctx context.Context, e *Exports, t Target, job func(context.Context, *Session) (T, error)) (T, error) {
	return result(ctx, e.DoInJob, t, job)
}

func result[T any](ctx context.Context, run func(context.Context, Target, func(context.Context, *Session) error) error,
	t Target, job func(context.Context, *Session) (T, error),
) (found T, err error) {
	results := make(chan T, 1)
	err = run(ctx, t, func(ctx context.Context, s *Session) error {
		v, err := job(ctx, s)
		if err == nil { // once: only a job that fails is run again
			results <- v
		}
		return err
	})
	if err != nil {
		return found, err
	}
	return <-results, nil
}

func opened(open func(*Session) error, job func(context.Context, *Session) error) func(context.Context, *Session) error {
	return func(ctx context.Context, s *Session) error {
		if err := open(s); err != nil {
			return err
		}
		return job(ctx, s)
	}
}

// On is Do for a job that opens the catalog itself.
func (e *Exports) On(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	// A caller fails at once, or while it waits, when the key's lock is held by a job
	// that hangs.
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
	again := time.NewTicker(AskAgain)
	defer again.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s: the server has not answered yet: %w", t.Key, ctx.Err())
		case <-again.C:
			if err := e.Answers(ctx, t.Key); err != nil {
				return err
			}
		}
	}
}

// DoInJob is Do for a job that has its own goroutine: it blocks while the server does
// not answer, and goes on when that comes back.
func (e *Exports) DoInJob(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	unlock, err := e.locks.Acquire(ctx, t.Key)
	if err != nil {
		return err
	}
	defer unlock()
	return e.retryStale(ctx, t, opened((*Session).Open, job))
}

// Visit is View for work in the background, which takes no lock.
func (e *Exports) Visit(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	return e.visit(ctx, t, opened((*Session).Look, job))
}

// Hold opens a session that lasts until it is released.
func (e *Exports) Hold(ctx context.Context, t Target) (s *Session, release func(), err error) {
	h, err := e.acquire(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	return &Session{Key: t.Key, Root: h.Root(), handle: h, exports: e}, h.Release, nil
}

// Answers returns volume.ErrUnreachable when the key's export, or one of others that
// the caller needs, is mounted and its server does not answer.
func (e *Exports) Answers(ctx context.Context, k Key, others ...volume.Export) error {
	for _, export := range slices.Concat([]volume.Export{k.Export}, others) {
		if err := e.cfg.Shares.Answers(ctx, export); errors.Is(err, volume.ErrUnreachable) {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

// Recover makes an error of a panic: what is done for a call is done in a goroutine,
// where the gRPC interceptor does not see it.
func Recover(ctx context.Context, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			klog.FromContext(ctx).Error(err, "A call panicked", logkeys.Stack, string(debug.Stack()))
		}
	}()
	return do()
}

// retryStale runs job again when another controller has removed what was open, or the
// mount is a new one now, as a repeated call would: at once, and where others use the
// same names after a few ticks of the server's clock, between which an NFSv3 client
// sees no change.
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

func (e *Exports) acquire(ctx context.Context, t Target) (h *share.Handle, err error) {
	if t.Exact {
		h, err = e.cfg.Shares.Acquire(ctx, t.Key.Export, t.MountOptions)
	} else {
		h, err = e.cfg.Shares.AcquireAny(ctx, t.Key.Export, t.MountOptions)
	}
	if err == nil {
		e.cfg.Opened(t)
	}
	return h, err
}
