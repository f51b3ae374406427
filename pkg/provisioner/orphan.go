package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// complete gives an orphaned volume its PersistentVolume: Kubernetes then does
// with it what the reclaim policy says. It never deletes on its own what could
// once have been in use.
func (s *session) complete(ctx context.Context, creation *plan.Creation) error {
	name, owner := creation.Request.GetName(), creation.Template.Spec.ClaimRef
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logPV, name, logPVC, klog.KRef(owner.Namespace, owner.Name))
	response, err := s.answer(ctx, creation)
	if nothingMade(err) {
		logger.Info("A volume whose claim is gone was not made", "reason", err.Error())
		s.end(creation)
		return nil
	}
	state := controller.ProvisioningInBackground
	if err == nil {
		state, err = s.saveOrphan(ctx, creation, response)
	}
	switch {
	case err == nil:
		logger.Info("Saved a volume whose claim is gone", "reclaimPolicy", creation.Template.Spec.PersistentVolumeReclaimPolicy)
	case state == controller.ProvisioningFinished:
		logger.Info("A volume whose claim is gone was not saved", "reason", err.Error())
	default:
		return fmt.Errorf("clean up after a deleted claim: %w", err)
	}
	s.end(creation)
	return nil
}

// saveOrphan leaves to a PersistentVolume what that has got hold of, and deletes a
// volume whose PersistentVolume is refused, as nothing leads to it any longer.
func (s *session) saveOrphan(ctx context.Context, creation *plan.Creation, response *csi.CreateVolumeResponse) (controller.ProvisioningState, error) {
	volume, state, err := s.judge(ctx, creation, response)
	if err != nil {
		return state, err
	}
	if err := s.refuseHeld(volume); err != nil {
		if errors.Is(err, errHeld) {
			state = controller.ProvisioningFinished
		}
		return state, err
	}
	state, err = s.save(ctx, creation, volume)
	var refused refusedError
	if !errors.As(err, &refused) {
		return state, err
	}
	claim, readErr := s.claimNamed(ctx, creation.Template.Spec.ClaimRef)
	if readErr != nil {
		return state, fmt.Errorf("%w; find out whether a claim counts on it: %w", err, readErr)
	}
	if !plan.MayDeleteUnsaved(creation.Template, claim) {
		return state, err
	}
	// For a try that knows the claim from the cache.
	s.deleted.add(volume.Name, time.Now())
	return s.discard(ctx, creation, volume.Spec.CSI.VolumeHandle, refused)
}

// answer is what the driver has said of a volume that was left behind, or says when it
// is asked once more: its ID is not to be had otherwise. It goes on without a secret
// that is gone.
func (s *session) answer(ctx context.Context, creation *plan.Creation) (*csi.CreateVolumeResponse, error) {
	if creation.Made != nil {
		return creation.Made, nil
	}
	secrets, err := s.creationSecrets(ctx, creation)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	response, err := s.request(ctx, creation, secrets)
	if err != nil {
		return nil, s.failure("CreateVolume", err, secrets)
	}
	return response, nil
}

// nothingMade tells whether answer failed as there is no volume.
func nothingMade(err error) bool {
	var failure *plan.Failure
	return errors.As(err, &failure) && failure.NothingMade()
}
