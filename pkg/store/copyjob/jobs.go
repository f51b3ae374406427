package copyjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// failureKept is how long a failure that no caller has seen is kept for the next one.
const failureKept = 10 * time.Minute

// Identity tells requests for one key apart.
type Identity[I any] interface {
	// Differs returns why what is made for this identity does not serve a request for
	// the other, nil if it does.
	Differs(other I) error
}

// Request for a copy.
type Request[I Identity[I]] struct {
	// Key of what is made.
	Key      session.Key
	Identity I
	// Sources are the exports that are copied from.
	Sources []volume.Export
	// Volume that is copied, directly or from a snapshot. Volumes share slots fairly.
	Volume string
	// Owner is the name whose deletion ends the job.
	Owner string
}

// Task is what a job passes to the function that does its work.
type Task struct {
	*tree.Progress
	// Pause is tree.CopyOptions.Pause.
	Pause func(context.Context) error
}

// Part is the task of the n-th of the trees that are copied in turn.
func (t Task) Part(n, of int) Task { return Task{t.Progress.Part(n, of), t.Pause} }

// Jobs of one kind, which result in a T.
type Jobs[I Identity[I], T any] struct {
	pool  *Pool
	byKey map[session.Key]*job[I, T] // guarded by pool.mu
}

// In returns a kind of jobs of the pool.
func In[I Identity[I], T any](pool *Pool) *Jobs[I, T] {
	return &Jobs[I, T]{pool: pool, byKey: map[session.Key]*job[I, T]{}}
}

type job[I Identity[I], T any] struct {
	Request[I]
	progress tree.Progress
	slot     atomic.Pointer[slot]
	cancel   context.CancelCauseFunc
	done     chan struct{}

	// Set before done is closed.
	result T
	err    error

	waiting int // guarded by Pool.mu
}

// String describes the progress.
func (j *job[I, T]) String() string {
	waits := j.slot.Load().String()
	switch {
	case waits == "":
		return "copying " + j.progress.String()
	case j.progress.Moves() == 0:
		return waits
	}
	return "copying " + j.progress.String() + ", " + waits
}

func (j *job[I, T]) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// Run starts a job, or joins the one that runs for the same key, and returns its
// result. A job waits for a server that does not answer, as the kernel does; Run does
// not.
//
// Errors besides those of work and Identity.Differs: volume.ErrInProgress with the
// progress when ctx is about to end first, volume.ErrUnreachable.
func (j *Jobs[I, T]) Run(ctx context.Context, req Request[I], work func(context.Context, Task) (T, error)) (T, error) {
	var none T
	// Not the sources' servers: a copy that is complete does not need them.
	if err := j.pool.exports.Answers(ctx, req.Key); err != nil {
		return none, err
	}
	running, err := j.join(req, work)
	if err != nil {
		return none, err
	}
	defer j.leave(running)
	waitCtx, cancel := beforeDeadline(ctx)
	defer cancel()
	if err := j.pool.await(waitCtx, running.done, req.Key, running.Sources); errors.Is(err, errNotEnded) {
		return none, fmt.Errorf("%s: %w: %s", req.Key, volume.ErrInProgress, running)
	} else if err != nil {
		return none, err
	}
	if running.err != nil {
		return none, running.err
	}
	return running.result, nil
}

// Running tells whether a job for k runs.
func (j *Jobs[I, T]) Running(k session.Key) bool {
	running := j.find(k)
	return running != nil && !running.ended()
}

// End ends the job for k if it has this owner, and waits for it.
func (j *Jobs[I, T]) End(ctx context.Context, k session.Key, owner string) error {
	running := j.find(k)
	if running == nil || running.Owner != owner {
		return nil
	}
	running.cancel(ErrDeleted)
	if err := j.pool.await(ctx, running.done, k, running.Sources); err != nil {
		return fmt.Errorf("%s: the copy is still being stopped: %w", k, err)
	}
	j.pool.mu.Lock()
	defer j.pool.mu.Unlock()
	j.forget(running)
	return nil
}

func (j *Jobs[I, T]) find(k session.Key) *job[I, T] {
	j.pool.mu.Lock()
	defer j.pool.mu.Unlock()
	return j.byKey[k]
}

func (j *Jobs[I, T]) join(req Request[I], work func(context.Context, Task) (T, error)) (*job[I, T], error) {
	j.pool.mu.Lock()
	defer j.pool.mu.Unlock()
	if have := j.byKey[req.Key]; have != nil {
		err := have.Identity.Differs(req.Identity)
		if err == nil {
			have.waiting++
			return have, nil
		}
		if !have.ended() {
			return nil, fmt.Errorf("it is being made: %w", err)
		}
	}
	if j.pool.ctx.Err() != nil {
		return nil, errClosing
	}
	return j.start(req, work), nil
}

// start is called with pool.mu held.
func (j *Jobs[I, T]) start(req Request[I], work func(context.Context, Task) (T, error)) *job[I, T] {
	ctx, cancel := context.WithCancelCause(j.pool.ctx)
	started := &job[I, T]{Request: req, cancel: cancel, done: make(chan struct{}), waiting: 1}
	j.byKey[req.Key] = started
	j.pool.running[&started.progress] = struct{}{}
	j.pool.jobs.Add(1)
	j.pool.exports.Go(func() {
		defer j.pool.jobs.Done()
		defer cancel(nil)
		started.err = session.Recover(ctx, func() error {
			slot := j.pool.slots.join(serversOf(req.Sources)+" to "+req.Key.Export.Server, req.Volume, started.progress.Moves)
			started.slot.Store(slot)
			defer slot.leave()
			err := slot.wait(ctx)
			if err == nil {
				started.result, err = work(ctx, Task{&started.progress, slot.pause})
			}
			return err
		})
		if cause := context.Cause(ctx); started.err != nil && cause != nil {
			started.err = fmt.Errorf("%s: stopped at %s: %w", req.Key, &started.progress, cause)
		}
		j.ended(started)
	})
	return started
}

// ended forgets the job unless it has failed and no caller has seen that.
func (j *Jobs[I, T]) ended(e *job[I, T]) {
	j.pool.mu.Lock()
	defer j.pool.mu.Unlock()
	close(e.done)
	delete(j.pool.running, &e.progress)
	if e.waiting > 0 || e.err == nil || j.pool.ctx.Err() != nil {
		j.forget(e)
		return
	}
	time.AfterFunc(failureKept, func() {
		j.pool.mu.Lock()
		defer j.pool.mu.Unlock()
		j.forget(e)
	})
}

// leave is called by each caller that has joined the job.
func (j *Jobs[I, T]) leave(e *job[I, T]) {
	j.pool.mu.Lock()
	defer j.pool.mu.Unlock()
	e.waiting--
	if e.ended() {
		j.forget(e)
	}
}

// forget is called with pool.mu held.
func (j *Jobs[I, T]) forget(e *job[I, T]) {
	if j.byKey[e.Key] == e {
		delete(j.byKey, e.Key)
	}
}

func serversOf(list []volume.Export) string {
	var servers []string
	for _, e := range list {
		servers = append(servers, e.Server)
	}
	return strings.Join(slices.Compact(servers), ", ")
}

// beforeDeadline ends shortly before ctx, so that the answer reaches the caller.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	early := min(time.Second, time.Until(deadline)/10)
	return context.WithDeadline(ctx, deadline.Add(-early))
}
