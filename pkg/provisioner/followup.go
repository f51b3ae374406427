package provisioner

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

const followUpInterval = time.Second

// followUp looks after the volumes in the making that no claim leads to any
// longer: left behind by a process that died, or by a claim that is gone.
func (s *session) followUp(ctx context.Context) {
	due := map[string]time.Time{}
	tick := time.NewTicker(followUpInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			entries := s.journal.Entries()
			s.observe(now, entries)
			for name := range due {
				if _, found := entries[name]; !found {
					delete(due, name)
				}
			}
			for name := range entries {
				if ctx.Err() == nil && now.After(due[name]) && s.busy.start(name) {
					due[name] = now.Add(s.followUpOne(name))
					s.busy.end(name)
				}
			}
		}
	}
}

// followUpOne returns how long to leave this one alone.
func (s *session) followUpOne(name string) time.Duration {
	// Only now that no try works on it: one may have come to its end since the
	// entries were listed, and the volume may be deleted already.
	data := s.journal.Entry(name)
	if data == nil {
		return 0
	}
	ctx, cancel := context.WithCancel(s.base)
	defer cancel()
	logger := klog.FromContext(ctx)
	creation, err := plan.RestoreCreation(data)
	if err != nil {
		// A later version may have written it, which will come back.
		logger.Error(err, "The journal has an entry that this version cannot read; it is left as it is", logPV, name)
		return s.config.RetryMax
	}
	remains, err := s.remains(ctx, creation)
	switch {
	case err != nil:
		logger.Error(err, "Cannot find out about a volume in the making", logPV, name)
	case remains == plan.RemainsSaved:
		s.end(creation)
	case remains == plan.RemainsOrphaned:
		err = s.complete(ctx, creation)
	case remains == plan.RemainsElsewhere:
		err = s.undo(ctx, creation)
	}
	if err != nil {
		delay := s.retries.When(name)
		s.report(creation.Template.Spec.ClaimRef, plan.Retried(err, delay))
		return delay
	}
	s.retries.Forget(name)
	return 0
}

// remains asks the caches first: most entries are of volumes that are saved.
func (s *session) remains(ctx context.Context, creation *plan.Creation) (plan.Remains, error) {
	template := creation.Template
	owner := template.Spec.ClaimRef
	volume, err := s.volumes.Get(template.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	claim, err := s.claims.PersistentVolumeClaims(owner.Namespace).Get(owner.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	if err != nil || claim.UID != owner.UID {
		claim = nil
	}
	if remains := s.config.Node.Abandoned(s.staying(volume), claim, template); remains == plan.RemainsSaved || remains == plan.RemainsWanted {
		return remains, nil
	}
	// Only the API server itself can say that there is neither.
	if volume, err = s.liveVolume(ctx, template.Name); err != nil {
		return 0, err
	}
	if claim, err = s.liveClaim(ctx, owner.Namespace, owner.Name, string(owner.UID)); err != nil {
		return 0, err
	}
	return s.config.Node.Abandoned(s.staying(volume), claim, template), nil
}

// staying is nil for a PersistentVolume whose volume was deleted at the driver: it
// is about to go, and is not that of a volume that was made anew since.
func (s *session) staying(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	if volume == nil || s.deleted.has(volume.Name) {
		return nil
	}
	return s.asCSI(volume)
}

// report says on a claim, which may be gone, what needs somebody's attention.
func (s *session) report(claim *corev1.ObjectReference, err error) {
	klog.FromContext(s.base).Error(err, "Cannot clean up a volume in the making", logPVC, klog.KRef(claim.Namespace, claim.Name))
	s.events.Event(claim, corev1.EventTypeWarning, "ProvisioningCleanupFailed", err.Error())
}
