package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

const followUpInterval = time.Second

// begin notes that a volume is about to be made, and keeps what it is filled from.
func (s *session) begin(ctx context.Context, creation *plan.Creation) error {
	name := creation.Request.GetName()
	data, err := creation.Store()
	if err != nil {
		return err
	}
	if err = s.protection.hold(ctx, creation.Origin, name); err == nil {
		err = s.journal.Begin(ctx, name, data)
	}
	if err != nil && s.journal.Entry(name) == nil {
		s.protection.release(creation.Origin, name)
	}
	return err
}

// settle takes the note back when a volume is no longer in the making.
func (s *session) settle(creation *plan.Creation, state controller.ProvisioningState, err error) {
	if state == controller.ProvisioningInBackground {
		return
	}
	noted, readErr := plan.RestoreCreation(s.journal.Entry(creation.Request.GetName()))
	if err != nil && readErr == nil && !proto.Equal(noted.Request, creation.Request) {
		// The note is of an earlier try with another request, whose volume may be
		// what was in the way of this one.
		return
	}
	s.end(creation)
}

func (s *session) end(creation *plan.Creation) {
	name := creation.Request.GetName()
	s.journal.End(name)
	s.protection.release(creation.Origin, name)
}

// deleting takes the note back of a volume that is about to be deleted: that it has
// a PersistentVolume tells that it was saved, which nobody can see any more once it
// is gone. The process that saved it has died before it took the note back.
func (s *session) deleting(volume *corev1.PersistentVolume) {
	name := volume.Name
	if s.journal.Entry(name) == nil || !s.busy.start(name) {
		return // a try makes it anew
	}
	defer s.busy.end(name)
	creation, err := plan.RestoreCreation(s.journal.Entry(name))
	if err == nil && s.config.Node.Abandoned(s.staying(volume), nil, creation.Template) == plan.RemainsSaved {
		s.end(creation)
	}
}

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
	volume, err = s.client.CoreV1().PersistentVolumes().Get(ctx, template.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		volume, err = nil, nil
	}
	if err != nil {
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

// complete gives an orphaned volume its PersistentVolume: Kubernetes then does
// with it what the reclaim policy says. It never deletes on its own what could
// once have been in use.
func (s *session) complete(ctx context.Context, creation *plan.Creation) error {
	name, owner := creation.Request.GetName(), creation.Template.Spec.ClaimRef
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logPV, name, logPVC, klog.KRef(owner.Namespace, owner.Name))
	secrets, err := s.creationSecrets(ctx, creation)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	volume, state, err := s.create(ctx, creation, secrets)
	var failure *plan.Failure
	switch isFailure := errors.As(err, &failure); {
	case err == nil:
		logger.Info("Saved a volume whose claim is gone", logVolume, volume.Spec.CSI.VolumeHandle,
			"reclaimPolicy", volume.Spec.PersistentVolumeReclaimPolicy)
	case isFailure && failure.NothingMade():
		logger.Info("A volume whose claim is gone was not made", "reason", failure.Error())
	case !isFailure && state == controller.ProvisioningFinished:
		logger.Info("A volume whose claim is gone could not be saved", "reason", err.Error())
	default:
		return fmt.Errorf("clean up after a deleted claim: %w", err)
	}
	s.end(creation)
	return nil
}

// report says on a claim, which may be gone, what needs somebody's attention.
func (s *session) report(claim *corev1.ObjectReference, err error) {
	klog.FromContext(s.base).Error(err, "Cannot clean up a volume in the making", logPVC, klog.KRef(claim.Namespace, claim.Name))
	s.events.Event(claim, corev1.EventTypeWarning, "ProvisioningCleanupFailed", err.Error())
}
