package volumes

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// errHeld is wrapped when another PersistentVolume has the handle of a volume to be
// saved.
var errHeld = errors.New("another PersistentVolume is for the volume")

// errOtherNode is the reason to discard a volume whose claim has moved.
var errOtherNode = errors.New("the claim gets its volume on another node")

// unsavedError is why a volume exists without its PersistentVolume.
type unsavedError struct{ cause error }

// Error implements error. The message of an event is truncated at its end, where the
// API server's reason is.
func (e *unsavedError) Error() string {
	return "volume is kept until its PersistentVolume can be saved: " + e.cause.Error()
}

// Unwrap is for errors.As.
func (e *unsavedError) Unwrap() error { return e.cause }

// refusedError is the cause when the API server does not accept a PersistentVolume
// until somebody changes something.
type refusedError struct{ error }

// saver turns the driver's response into a saved PersistentVolume, or deletes a volume
// that cannot be used.
type saver struct {
	config  Config
	calls   calls
	tracker *tracker
}

// accept returns the PersistentVolume of a response, or deletes a volume that cannot
// be used.
func (s *saver) accept(ctx context.Context, creation *plan.Creation, response *csi.CreateVolumeResponse) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	volume, err := creation.Volume(response)
	if err != nil {
		state, err := s.discard(ctx, creation, response.GetVolume().GetVolumeId(), err)
		return nil, state, err
	}
	if err := s.config.Cluster.Node.CheckTopology(volume); err != nil {
		state, err := s.discardMisplaced(ctx, creation, volume, err)
		return nil, state, err
	}
	creation.Response = response
	return volume, controller.ProvisioningInBackground, nil
}

// save writes the PersistentVolume. The library would do so too, but takes it for
// saved when any PersistentVolume has its name, and would leave the volume behind.
// While it cannot be saved, the claim stays in progress. A refusal of the API server is
// no reason to delete the volume: an admission policy can be corrected, and the volume
// may be a directory with somebody's data.
func (s *saver) save(ctx context.Context, creation *plan.Creation, volume *corev1.PersistentVolume) (controller.ProvisioningState, error) {
	form, err := s.config.Cluster.Migration.Saved(creation, volume)
	if err != nil {
		return s.discard(ctx, creation, volume.Spec.CSI.VolumeHandle, err)
	}
	_, err = s.config.Cluster.Client.CoreV1().PersistentVolumes().Create(ctx, form, metav1.CreateOptions{})
	switch {
	case err == nil:
		s.tracker.deleted.Delete(volume.Name) // an earlier volume of this name
		klog.FromContext(ctx).V(2).Info("Created volume", logkeys.PVC, klog.KRef(volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name),
			logkeys.PV, volume.Name, logkeys.VolumeHandle, volume.Spec.CSI.VolumeHandle)
		return controller.ProvisioningFinished, nil
	case apierrors.IsAlreadyExists(err):
		return s.resolveConflict(ctx, creation, volume)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return s.keep(ctx, creation, refusedError{fmt.Errorf("the API server refuses PersistentVolume %s: %w", volume.Name, err)})
	default:
		return s.keep(ctx, creation, fmt.Errorf("save PersistentVolume %s: %w", volume.Name, err))
	}
}

// saveCreated saves the volume of an earlier try, unless a PersistentVolume that
// somebody else has made refers to it.
func (s *saver) saveCreated(ctx context.Context, creation *plan.Creation) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	volume, state, err := s.accept(ctx, creation, creation.Response)
	if err != nil {
		return nil, state, err
	}
	if err := s.checkNotHeld(volume); err != nil {
		return nil, controller.ProvisioningInBackground, err
	}
	state, err = s.save(ctx, creation, volume)
	return volume, state, err
}

// checkNotHeld reads the cache, which has every PersistentVolume that existed when
// this process started.
func (s *saver) checkNotHeld(volume *corev1.PersistentVolume) error {
	holder, err := s.config.Cluster.Holder(volume.Spec.CSI.VolumeHandle, volume.Name)
	switch {
	case err != nil || holder == "":
		return err
	case s.tracker.wasDeleted(holder):
		return fmt.Errorf("PersistentVolume %s, which is for the same volume, is being deleted", holder)
	}
	return fmt.Errorf("%w that CSI driver %s created for this claim: %s", errHeld, volume.Spec.CSI.Driver, holder)
}

// resolveConflict decides what becomes of a volume when a PersistentVolume of its
// name exists.
func (s *saver) resolveConflict(ctx context.Context, creation *plan.Creation, volume *corev1.PersistentVolume) (controller.ProvisioningState, error) {
	existing, err := s.config.Cluster.Client.CoreV1().PersistentVolumes().Get(ctx, volume.Name, metav1.GetOptions{})
	if err != nil {
		return controller.ProvisioningInBackground, fmt.Errorf("PersistentVolume %s exists already, read it: %w", volume.Name, err)
	}
	if s.config.Cluster.OnOtherNode(existing) {
		// It is not for the volume on this node.
		return s.discard(ctx, creation, volume.Spec.CSI.VolumeHandle, fmt.Errorf("%w: PersistentVolume %s exists already", errOtherNode, volume.Name))
	}
	if plan.Saved(existing, volume) {
		if existing.DeletionTimestamp == nil && !s.tracker.wasDeleted(volume.Name) {
			return controller.ProvisioningFinished, nil
		}
		// Its volume was deleted, and this try has created it anew. The new one needs a
		// PersistentVolume that stays.
		deleting := fmt.Errorf("PersistentVolume %s of the same claim is being deleted", volume.Name)
		return controller.ProvisioningInBackground, errors.Join(deleting, s.tracker.forgetCreated(ctx, volume.Name))
	}
	taken := fmt.Errorf("%w: PersistentVolume %s exists already and is not this claim's", plan.ErrClaim, volume.Name)
	if s.config.Cluster.Migration.Same(klog.FromContext(ctx), existing, volume.Spec.CSI.Driver, volume.Spec.CSI.VolumeHandle) {
		return controller.ProvisioningFinished, fmt.Errorf("%w; it is for the same volume that CSI driver %s created for this claim, which was not deleted",
			taken, volume.Spec.CSI.Driver)
	}
	return s.keep(ctx, creation, refusedError{taken})
}

// keep records a volume that could not be saved. The next try, also that of another
// process, saves it without a call to the driver.
func (s *saver) keep(ctx context.Context, creation *plan.Creation, cause error) (controller.ProvisioningState, error) {
	if err := s.tracker.recordCreated(ctx, creation); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to record unsaved volume; after a crash the driver is called again", logkeys.PV, creation.Request.GetName())
	}
	return controller.ProvisioningInBackground, &unsavedError{cause}
}

// discard deletes a volume that cannot be used. If that fails the claim stays in
// progress: the next try gets the same volume from the driver and discards it, also
// if the claim is deleted meanwhile.
func (s *saver) discard(ctx context.Context, creation *plan.Creation, handle string, cause error) (controller.ProvisioningState, error) {
	if handle == "" {
		// Without a handle nothing can be deleted.
		return controller.ProvisioningFinished, cause
	}
	holder, err := s.config.Cluster.Holder(handle, "")
	if err != nil {
		return controller.ProvisioningInBackground, fmt.Errorf("%w; it was not deleted: %w", cause, err)
	}
	if holder != "" {
		return controller.ProvisioningFinished, fmt.Errorf("%w; it was not deleted, as PersistentVolume %s is for the same volume", cause, holder)
	}
	if err := s.calls.able(); err != nil {
		return controller.ProvisioningInBackground, fmt.Errorf("%w; it was not deleted: %w", cause, err)
	}
	secrets, err := s.calls.creationSecrets(ctx, creation)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.ProvisioningInBackground, fmt.Errorf("%w; it was not deleted: %w", cause, err)
	}
	if err := s.calls.delete(ctx, &csi.DeleteVolumeRequest{VolumeId: handle, Secrets: secrets}, creation.Migrated); err != nil {
		return controller.ProvisioningInBackground, fmt.Errorf("%w; it could not be deleted: %w", cause, err)
	}
	return controller.ProvisioningFinished, fmt.Errorf("%w; it was deleted", cause)
}

// discardMisplaced discards a volume that is not on the node that is served.
func (s *saver) discardMisplaced(ctx context.Context, creation *plan.Creation, volume *corev1.PersistentVolume, cause error) (controller.ProvisioningState, error) {
	if volume.Spec.NodeAffinity != nil {
		// It may be another node's, and in use there.
		return controller.ProvisioningFinished, fmt.Errorf("%w; it was not deleted", cause)
	}
	return s.discard(ctx, creation, volume.Spec.CSI.VolumeHandle, cause)
}
