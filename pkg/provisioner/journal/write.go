package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// batchDelay is the least time between two writes, so that a burst of Begins shares
	// them.
	batchDelay = 10 * time.Millisecond
	// writeRate bounds the bytes per second of a burst: the database of the API server
	// keeps the content of each write for some minutes.
	writeRate = 1 << 20
	// tryDelay is the delay before a write is repeated that got no answer.
	tryDelay = 250 * time.Millisecond
)

var (
	// errCannot is wrapped when the API server does not take a write, and work may go on
	// without it.
	errCannot = errors.New("the ConfigMap cannot be written")
	// errChanged is the reason to repeat a write: somebody else has written meanwhile.
	errChanged = errors.New("the ConfigMap was changed by somebody else")
	errFull    = errors.New("its entries do not fit")
	errStopped = errors.New("csi-provisioner is stopping")
)

// Run writes until ctx ends, and then once more.
func (j *Journal) Run(ctx context.Context) {
	for ctx.Err() == nil {
		j.endFormer(ctx)
		s, due := j.next()
		if due == 0 {
			j.write(ctx, s, true)
			continue
		}
		timer := time.NewTimer(due)
		select {
		case <-ctx.Done():
		case <-j.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.config.TryFor)
	defer cancel()
	for _, s := range j.shards {
		if j.isDirty(s) {
			j.write(ctx, s, false)
		}
		j.answerAll(s, errStopped)
	}
	j.endFormer(ctx)
}

func (j *Journal) isDirty(s *shard) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !s.dirty.IsZero()
}

// next returns the shard to be written next, and in what time.
func (j *Journal) next() (next *shard, due time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	due = time.Hour
	if j.former.object != nil {
		due = j.config.RetryAfter
	}
	for _, s := range j.shards {
		var at time.Time
		switch {
		case s.failure != nil:
			at = s.retry
		case s.dirty.IsZero():
			continue
		case len(s.waiting) == 0:
			at = s.dirty.Add(j.config.EndDelay)
		}
		if at.Before(j.nextWrite) {
			at = j.nextWrite
		}
		if in := max(0, time.Until(at)); in < due {
			next, due = s, in
		}
	}
	return next, due
}

// write writes a shard and passes the result to the waiting calls. With patience, a write
// without an answer is repeated for some time.
func (j *Journal) write(parent context.Context, s *shard, patience bool) {
	ctx, cancel := context.WithTimeout(parent, j.config.TryFor)
	defer cancel()
	for {
		err := j.try(ctx, s)
		switch {
		case err == nil:
			j.succeeded(ctx, s)
			return
		case errors.Is(err, errChanged) && pause(ctx, batchDelay):
		case patience && !refused(err) && j.mayRepeat(s) && pause(ctx, tryDelay):
		case parent.Err() != nil:
			return // Run writes once more
		default:
			j.failed(ctx, s, err)
			return
		}
	}
}

// mayRepeat reports whether calls may wait for the shard.
func (j *Journal) mayRepeat(s *shard) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return s.failure == nil
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// refused reports whether the API server has answered that it does not take a request,
// so that the same request will not succeed in a moment.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errors.Is(err, errUnreadable)
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsTooManyRequests(err) && !apierrors.IsTimeout(err)
}

// try writes a shard once.
func (j *Journal) try(ctx context.Context, s *shard) error {
	if !s.read {
		if err := j.load(ctx, s); err != nil {
			return err
		}
	}
	if !j.isDirty(s) {
		return nil // it was to be read, or another shard had no answer
	}
	taken, err := j.take(s)
	if err != nil {
		return err
	}
	content, complete, err := j.content(s, &taken)
	if err == nil {
		err = j.put(ctx, s, &taken, content)
	}
	if err == nil && !complete {
		err = fmt.Errorf("%w: %w", errCannot, errFull)
		j.complain(ctx, s.name, err)
		j.answer(taken.waiting, err)
		return nil
	}
	if err != nil {
		// The calls wait for the next try.
		j.mu.Lock()
		defer j.mu.Unlock()
		s.waiting = slices.Concat(taken.waiting, s.waiting)
		j.dirty(s)
		return err
	}
	j.answer(taken.waiting, nil)
	return nil
}

func (j *Journal) answer(waiting []chan error, err error) {
	for _, done := range waiting {
		done <- err
	}
}

func (j *Journal) answerAll(s *shard, err error) {
	j.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	j.mu.Unlock()
	j.answer(waiting, err)
}

// put replaces the content of a ConfigMap.
func (j *Journal) put(ctx context.Context, s *shard, taken *snapshot, content map[string][]byte) (err error) {
	before := j.presume(s, *taken)
	object := taken.object
	if object == nil {
		object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: s.name}, BinaryData: content}
		if j.config.Owner != nil {
			if object.OwnerReferences, err = j.config.Owner(ctx); err != nil {
				return err
			}
		}
		object, err = j.config.Client.Create(ctx, object, metav1.CreateOptions{})
	} else {
		object.BinaryData = content
		object, err = j.config.Client.Update(ctx, object, metav1.UpdateOptions{})
	}
	j.mu.Lock()
	size := s.size
	j.nextWrite = time.Now().Add(min(time.Second, max(batchDelay, time.Duration(size)*time.Second/writeRate)))
	j.mu.Unlock()
	switch {
	case err == nil:
		j.settled(s, *taken, object)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && taken.object != nil:
		s.read = false
		return fmt.Errorf("%w: %w", errChanged, err)
	case refused(err):
		j.mu.Lock()
		s.present = before
		j.mu.Unlock()
	}
	return err
}

// presume treats a write as successful before it is, so that its entries are not mistaken
// for another process's if only the answer is lost.
func (j *Journal) presume(s *shard, taken snapshot) (before map[string]struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before, s.present = s.present, maps.Clone(s.present)
	for key := range taken.entries {
		s.present[key] = struct{}{}
	}
	return before
}
