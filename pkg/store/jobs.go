package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// resultKept is for how long the failure of a job that nobody waited for is kept
// for the next caller.
const resultKept = 10 * time.Minute

// errClosing: the process ends.
var errClosing = errors.New("store: closing")

// jobs are copies, by what they make. A job belongs to the store and not to the
// call that began it: it goes on when the caller has gone, and the next call of
// the same kind waits for it again.
type jobs struct {
	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	byKey map[session.Key]*job
	used  map[session.Key]int // what copies are being made of
}

// jobRequest is what a job is to make, and from what.
type jobRequest struct {
	key    session.Key
	want   catalog.Record // of what it makes; the same for identical calls
	from   []volume.Export
	source string // the volume whose copies share their slots fairly with others'
	owner  string // whose deletion ends it
}

type job struct {
	jobRequest
	progress tree.Progress
	slot     atomic.Pointer[slot]
	cancel   context.CancelCauseFunc
	done     chan struct{}

	// Set before done is closed.
	value any
	err   error

	waiting int // guarded by jobs.mu
}

// String is how far it is.
func (j *job) String() string {
	waits := j.slot.Load().String()
	switch {
	case waits == "":
		return "copying " + j.progress.String()
	case j.progress.Moves() == 0:
		return waits
	}
	return "copying " + j.progress.String() + ", " + waits
}

// task is what a job gives those who do its work.
type task struct {
	*tree.Progress
	// pause is tree.CopyOptions.Pause.
	pause func(context.Context) error
}

// part is the task of the n-th of the trees that are copied in turn.
func (t task) part(n, of int) task { return task{t.Part(n, of), t.pause} }

func newJobs(ctx context.Context) *jobs {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	return &jobs{ctx: ctx, stop: stop, byKey: map[session.Key]*job{}, used: map[session.Key]int{}}
}

// close cancels all jobs and waits for them.
func (j *jobs) close() {
	j.mu.Lock()
	j.stop(errClosing)
	j.mu.Unlock()
	j.wg.Wait()
}

// runJob begins the job, or joins the one that runs. When ctx is about to end first,
// the error is volume.ErrInProgress and tells how far the job is.
//
// A job waits for a server that does not answer, as the kernel does; the callers
// hear of it.
func runJob[T any](ctx context.Context, s *Store, req jobRequest, work func(context.Context, task) (T, error)) (T, error) {
	var none T
	k := req.key
	// Of the sources only who waits asks: what was made before needs none.
	if err := s.exports.Answers(ctx, k); err != nil {
		return none, err
	}
	j, err := s.copies.join(s.exports, req, func(ctx context.Context, j *job) (any, error) {
		slot := s.slots.join(serversOf(req.from)+" to "+k.Export.Server, req.source, j.progress.Moves)
		j.slot.Store(slot)
		defer slot.leave()
		if err := slot.wait(ctx); err != nil {
			return nil, err
		}
		return work(ctx, task{&j.progress, slot.pause})
	})
	if err != nil {
		return none, err
	}
	defer s.copies.leave(k, j)
	waitCtx, cancel := answering(ctx)
	defer cancel()
	if err := s.await(waitCtx, k, j); errors.Is(err, errNotYet) {
		return none, fmt.Errorf("%s: %w: %s", k, volume.ErrInProgress, j)
	} else if err != nil {
		return none, err
	}
	if j.err != nil {
		return none, j.err
	}
	value, ok := j.value.(T)
	if !ok {
		return none, fmt.Errorf("%s: job made a %T", k, j.value)
	}
	return value, nil
}

var errNotYet = errors.New("it has not ended yet")

// await waits for the job until ctx ends, or until one of its servers does not answer.
func (s *Store) await(ctx context.Context, k session.Key, j *job) error {
	again := time.NewTicker(session.AskAgain)
	defer again.Stop()
	for {
		select {
		case <-j.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNotYet, ctx.Err())
		case <-again.C:
			if err := s.exports.Answers(ctx, k, j.from...); err != nil {
				return err
			}
		}
	}
}

func serversOf(list []volume.Export) string {
	var servers []string
	for _, e := range list {
		servers = append(servers, e.Server)
	}
	return strings.Join(slices.Compact(servers), ", ")
}

// answering ends a little before ctx, so that the answer arrives in time.
func answering(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	early := min(time.Second, time.Until(deadline)/10)
	return context.WithDeadline(ctx, deadline.Add(-early))
}

func (j *jobs) join(running *session.Exports, req jobRequest, work func(context.Context, *job) (any, error)) (*job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if have := j.byKey[req.key]; have != nil {
		// Not only of another source: classes may give two volumes one directory.
		err := sameRequest(have.want, req.want, SizeRange{})
		if err == nil {
			have.waiting++
			return have, nil
		}
		if !have.ended() {
			return nil, fmt.Errorf("it is being made: %w", err)
		}
	}
	if j.ctx.Err() != nil {
		return nil, errClosing
	}
	ctx, cancel := context.WithCancelCause(j.ctx)
	made := &job{jobRequest: req, cancel: cancel, done: make(chan struct{}), waiting: 1}
	j.byKey[req.key] = made
	j.wg.Add(1)
	running.Go(func() {
		defer j.wg.Done()
		defer cancel(nil)
		made.err = session.Recover(ctx, func() (err error) {
			made.value, err = work(ctx, made)
			return err
		})
		if cause := context.Cause(ctx); made.err != nil && cause != nil {
			made.err = fmt.Errorf("%s: stopped at %s: %w", req.key, &made.progress, cause)
		}
		j.ended(req.key, made)
	})
	return made, nil
}

// ended forgets a job whose result somebody has, or the export has, and keeps a
// failure for a while that nobody has seen.
func (j *jobs) ended(k session.Key, e *job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(e.done)
	if e.waiting > 0 || e.err == nil || j.ctx.Err() != nil {
		j.forget(k, e)
		return
	}
	time.AfterFunc(resultKept, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.forget(k, e)
	})
}

// leave counts a caller out; one who saw a kept failure takes it along.
func (j *jobs) leave(k session.Key, e *job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.waiting--
	if e.ended() {
		j.forget(k, e)
	}
}

func (j *job) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

func (j *jobs) forget(k session.Key, e *job) {
	if j.byKey[k] == e {
		delete(j.byKey, k)
	}
}

// errDeleted ends a job whose result is not wanted any more.
var errDeleted = fmt.Errorf("%w: it was deleted while it was being made", volume.ErrNotFound)

// endCopy ends the job of k for its owner, if there is one, and waits for it.
func (s *Store) endCopy(ctx context.Context, k session.Key, owner string) error {
	running := s.copies.running(k)
	if running == nil || running.owner != owner {
		return nil
	}
	running.cancel(errDeleted)
	if err := s.await(ctx, k, running); err != nil {
		return fmt.Errorf("%s: the copy is still being stopped: %w", k, err)
	}
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	s.copies.forget(k, running)
	return nil
}

func (j *jobs) running(k session.Key) *job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.byKey[k]
}

// use notes that a copy is being made of k.
func (j *jobs) use(k session.Key) (release func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.used[k]++
	return sync.OnceFunc(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.used[k]--; j.used[k] == 0 {
			delete(j.used, k)
		}
	})
}

// free returns volume.ErrInUse while a copy is being made of k.
func (j *jobs) free(k session.Key) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.used[k] > 0 {
		return fmt.Errorf("%w: %s is being copied", volume.ErrInUse, k)
	}
	return nil
}

// CopyBacklog is how many copies run and what they have left to do, as far as
// that is known.
func (s *Store) CopyBacklog() (copies int, bytes, entries int64) {
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	for _, e := range s.copies.byKey {
		if e.ended() {
			continue
		}
		copies++
		b, n := e.progress.Left()
		bytes, entries = bytes+b, entries+n
	}
	return copies, bytes, entries
}
