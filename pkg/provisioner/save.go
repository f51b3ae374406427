package provisioner

import (
	"context"
	"errors"
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
// so that the claim stays in progress. What the API server says of a PersistentVolume
// is no reason to delete the volume: an admission policy may be put right, and what
// the driver has given the claim may be a directory with somebody's data.
func (s *session) save(ctx context.Context, creation *plan.Creation, volume *corev1.PersistentVolume) (controller.ProvisioningState, error) {
	form, err := s.migration.Saved(creation, volume)
	if err != nil {
		return s.discard(ctx, creation, volume.Spec.CSI.VolumeHandle, err)
	}
	_, err = s.client.CoreV1().PersistentVolumes().Create(ctx, form, metav1.CreateOptions{})
	switch {
	case err == nil:
		s.deleted.forget(volume.Name) // that was the one before
		klog.FromContext(ctx).V(2).Info("Volume created", logPVC, klog.KRef(volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name),
			logPV, volume.Name, logVolume, volume.Spec.CSI.VolumeHandle)
		return controller.ProvisioningFinished, nil
	case apierrors.IsAlreadyExists(err):
		return s.collide(ctx, creation, volume)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return s.keep(ctx, creation, refusedError{fmt.Errorf("the API server refuses PersistentVolume %s: %w", volume.Name, err)})
	default:
		return s.keep(ctx, creation, fmt.Errorf("save PersistentVolume %s: %w", volume.Name, err))
	}
}

// collide decides what becomes of a volume whose PersistentVolume's name is taken.
func (s *session) collide(ctx context.Context, creation *plan.Creation, volume *corev1.PersistentVolume) (controller.ProvisioningState, error) {
	existing, err := s.client.CoreV1().PersistentVolumes().Get(ctx, volume.Name, metav1.GetOptions{})
	if err != nil {
		return controller.ProvisioningInBackground, fmt.Errorf("PersistentVolume %s exists already, find out whose it is: %w", volume.Name, err)
	}
	if s.isElsewhere(existing) {
		// Saved or another claim's, it is not for what was made here.
		return s.discard(ctx, creation, volume.Spec.CSI.VolumeHandle, fmt.Errorf("%w: PersistentVolume %s exists already", errElsewhere, volume.Name))
	}
	if plan.Saved(existing, volume) {
		if existing.DeletionTimestamp == nil && !s.deleted.has(volume.Name) {
			return controller.ProvisioningFinished, nil
		}
		// Its volume was deleted, and has just been made anew by this try: the new one
		// needs a PersistentVolume that stays.
		going := fmt.Errorf("PersistentVolume %s of the same claim is being deleted", volume.Name)
		return controller.ProvisioningInBackground, errors.Join(going, s.unmake(ctx, volume.Name))
	}
	taken := fmt.Errorf("%w: PersistentVolume %s exists already and is not this claim's", plan.ErrClaim, volume.Name)
	if s.migration.Same(klog.FromContext(ctx), existing, volume.Spec.CSI.Driver, volume.Spec.CSI.VolumeHandle) {
		return controller.ProvisioningFinished, fmt.Errorf("%w; it is for the very volume that CSI driver %s made for this claim, so that was not deleted",
			taken, volume.Spec.CSI.Driver)
	}
	return s.keep(ctx, creation, refusedError{taken})
}

// ownerOf is the name of a PersistentVolume that is for the driver's volume, empty
// for none: such a volume must not be deleted because another claim got it too.
// A driver that makes volumes on its own node can give one on each the same ID.
func (s *session) ownerOf(volumeID string) (string, error) {
	volumes, err := s.volumes.List(labels.Everything())
	if err != nil {
		return "", err
	}
	driver := s.config.Driver.Capabilities().DriverName
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
