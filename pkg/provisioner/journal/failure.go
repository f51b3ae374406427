package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

// Reasons of events.
const (
	reasonNotWritten = "JournalNotWritten"
	reasonWritten    = "JournalWritten"
)

// reportInterval is how often the same state is reported.
const reportInterval = 10 * time.Minute

// reports limits reports. It belongs to Journal.mu.
type reports struct {
	next time.Time
	// name is of the ConfigMap that the last one was about, full whether it has no room.
	name string
	full bool
}

// failed has the waiting calls go on without the journal, unless another process may have
// written it.
func (j *Journal) failed(ctx context.Context, s *shard, err error) {
	cannot := !errors.Is(err, errChanged)
	if cannot {
		err = fmt.Errorf("%w: %w", errCannot, err)
	}
	j.mu.Lock()
	shards := []*shard{s}
	if cannot && !refused(err) {
		shards = j.shards // no answer, and the others would wait for one as long
	}
	var waiting []chan error
	for _, s := range shards {
		waiting = append(waiting, s.waiting...)
		s.waiting = nil
		if cannot {
			s.failure, s.retry = err, time.Now().Add(j.config.RetryAfter)
		}
	}
	if !cannot {
		s.dirty = time.Now() // repeated later
	}
	j.mu.Unlock()
	if cannot {
		j.complain(ctx, s.name, err)
	} else {
		klog.FromContext(ctx).Error(err, "Failed to write the journal", logkeys.ConfigMap, s.name)
	}
	j.answer(waiting, err)
}

// complain reports that there are volumes which the journal does not have.
func (j *Journal) complain(ctx context.Context, name string, err error) {
	j.mu.Lock()
	now := time.Now()
	full := errors.Is(err, errFull)
	due := full != j.reports.full || !now.Before(j.reports.next)
	if due {
		j.reports = reports{now.Add(reportInterval), name, full}
	}
	j.mu.Unlock()
	if !due {
		return
	}
	klog.FromContext(ctx).Error(err, "Provisioning without the journal: if csi-provisioner crashes, volumes of claims that are deleted before it runs again are left behind",
		logkeys.ConfigMap, name, logkeys.RetryIn, j.config.RetryAfter)
	j.config.Events.Eventf(j.reference(name), corev1.EventTypeWarning, reasonNotWritten,
		"volumes are created without being recorded in the journal: if csi-provisioner crashes, those of claims that are deleted before it runs again are left behind: %v", err)
}

// succeeded reports the end of a failure.
func (j *Journal) succeeded(ctx context.Context, s *shard) {
	j.mu.Lock()
	failed := s.failure != nil
	s.failure = nil
	recovered := failed && !j.failing()
	name := j.reports.name
	if recovered {
		j.reports = reports{}
	}
	j.mu.Unlock()
	if recovered {
		klog.FromContext(ctx).Info("Writing the journal again", logkeys.ConfigMap, name)
		j.config.Events.Event(j.reference(name), corev1.EventTypeNormal, reasonWritten, "the journal is written again: it has every volume that is being created")
	}
}
