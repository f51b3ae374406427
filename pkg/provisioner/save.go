package provisioner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// save writes the PersistentVolume. The library would do so too, but takes it for
// saved when there is one of the same name, whoever's that is, and the volume
// would be left behind. While it cannot be saved the volume is there without it,
// so that the claim stays in progress.
func (s *session) save(ctx context.Context, creation *plan.Creation, volume *corev1.PersistentVolume, secrets map[string]string) (controller.ProvisioningState, error) {
	form, err := s.migration.Saved(creation, volume)
	if err != nil {
		return s.discard(ctx, volume.Spec.CSI.VolumeHandle, secrets, err)
	}
	_, err = s.client.CoreV1().PersistentVolumes().Create(ctx, form, metav1.CreateOptions{})
	switch {
	case err == nil:
		s.deleted.forget(volume.Name) // that was the one before
		return controller.ProvisioningFinished, nil
	case apierrors.IsInvalid(err):
		return s.discard(ctx, volume.Spec.CSI.VolumeHandle, secrets, fmt.Errorf("the API server refuses the PersistentVolume of the volume made: %w", err))
	case !apierrors.IsAlreadyExists(err):
		return controller.ProvisioningInBackground, fmt.Errorf("save PersistentVolume %s: %w", volume.Name, err)
	}
	existing, err := s.client.CoreV1().PersistentVolumes().Get(ctx, volume.Name, metav1.GetOptions{})
	if err != nil {
		return controller.ProvisioningInBackground, fmt.Errorf("PersistentVolume %s exists already, find out whose it is: %w", volume.Name, err)
	}
	if s.isElsewhere(existing) {
		// Saved or another claim's, it is not for what was made here.
		return s.discard(ctx, volume.Spec.CSI.VolumeHandle, secrets, fmt.Errorf("%w: PersistentVolume %s exists already", errElsewhere, volume.Name))
	}
	if plan.Saved(existing, volume) {
		if existing.DeletionTimestamp != nil || s.deleted.has(volume.Name) {
			// Its volume was deleted, and has just been made anew by this try: the
			// new one needs a PersistentVolume that stays.
			return controller.ProvisioningInBackground, fmt.Errorf("PersistentVolume %s of the same claim is being deleted", volume.Name)
		}
		return controller.ProvisioningFinished, nil
	}
	taken := fmt.Errorf("%w: PersistentVolume %s exists already and is not this claim's", plan.ErrClaim, volume.Name)
	if s.migration.Same(klog.FromContext(ctx), existing, volume.Spec.CSI.Driver, volume.Spec.CSI.VolumeHandle) {
		return controller.ProvisioningFinished, fmt.Errorf("%w; it is for the very volume that CSI driver %s made for this claim, so that was not deleted",
			taken, volume.Spec.CSI.Driver)
	}
	return s.discard(ctx, volume.Spec.CSI.VolumeHandle, secrets, fmt.Errorf("%w; the volume made cannot be used", taken))
}

// ownerOf is the name of a PersistentVolume that is for the driver's volume, empty
// for none: such a volume must not be deleted because another claim got it too.
// A driver that makes volumes on its own node can give one on each the same ID.
func (s *session) ownerOf(volumeID string) (string, error) {
	volumes, err := s.volumes.List(labels.Everything())
	if err != nil {
		return "", err
	}
	driver := s.config.Driver.Facts().Name
	for _, volume := range volumes {
		if s.isElsewhere(volume) {
			continue
		}
		if s.migration.Same(klog.Background(), volume, driver, volumeID) {
			return volume.Name, nil
		}
	}
	return "", nil
}

// isElsewhere tells whether a volume is known to be on another node than the only
// one there is to work for.
func (s *session) isElsewhere(volume *corev1.PersistentVolume) bool {
	return volume.Spec.NodeAffinity != nil && !s.config.Node.Holds(s.asCSI(volume))
}
