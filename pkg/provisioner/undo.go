package provisioner

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

var errElsewhere = errors.New("the claim gets its volume on another node")

// misplaced refuses a volume that the driver made, or has, somewhere else than on
// the only node there is to work for.
func (s *session) misplaced(ctx context.Context, creation *plan.Creation, volume *corev1.PersistentVolume, err error) (controller.ProvisioningState, error) {
	if volume.Spec.NodeAffinity != nil {
		// It may be another node's, and in use there.
		return controller.ProvisioningFinished, fmt.Errorf("%w; it was not deleted", err)
	}
	return s.discard(ctx, creation, volume.Spec.CSI.VolumeHandle, err)
}

// undo deletes a volume that was in the making on this node for a claim that has
// gone to another one. Nobody can have used it: it never had a PersistentVolume.
func (s *session) undo(ctx context.Context, creation *plan.Creation) error {
	response, err := s.answer(ctx, creation)
	if nothingMade(err) {
		s.end(creation)
		return nil
	}
	if err != nil {
		return fmt.Errorf("clean up, as %w: %w", errElsewhere, err)
	}
	volume, err := creation.Volume(response)
	if err == nil {
		// A driver that makes one volume of that name for all nodes has not made a
		// second one here.
		err = s.config.Node.CheckPlace(volume)
	}
	if err != nil {
		s.report(creation.Template.Spec.ClaimRef, fmt.Errorf("%w; nothing was deleted, and %w", err, errElsewhere))
		s.end(creation)
		return nil
	}
	state, err := s.discard(ctx, creation, volume.Spec.CSI.VolumeHandle, errElsewhere)
	if state == controller.ProvisioningInBackground {
		return err
	}
	klog.FromContext(ctx).Info("Cleaned up a volume in the making", logPV, volume.Name, "outcome", err.Error())
	s.end(creation)
	return nil
}
