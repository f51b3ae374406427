package volumes

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// deleter deletes the volumes of PersistentVolumes.
type deleter struct {
	config  Config
	calls   calls
	tracker *tracker
}

// Delete deletes the volume of a PersistentVolume. Every error is retried.
func (d *deleter) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	done, err := d.tracker.beforeDeletion(ctx, volume)
	defer done()
	if err != nil {
		return err
	}
	if !d.config.Cluster.Migration.MayDelete(volume) {
		return &controller.IgnoredError{Reason: "the in-tree plugin has not left it to a CSI driver"}
	}
	migrated := volume.Spec.CSI == nil
	volume, err = d.config.Cluster.Migration.Volume(klog.FromContext(ctx), volume)
	if err != nil {
		return err
	}
	source := volume.Spec.CSI
	if driver := d.config.Cluster.Driver.DriverName; source == nil || source.Driver != driver {
		return &controller.IgnoredError{Reason: "it is not a volume of CSI driver " + driver}
	}
	if source.VolumeHandle == "" {
		return fmt.Errorf("%w: %s has no volume handle", plan.ErrVolume, volume.Name)
	}
	if err := d.calls.able(); err != nil {
		return err
	}
	if err := d.config.Cluster.CheckDetached(ctx, volume); err != nil {
		return err
	}
	secrets, err := d.secrets(ctx, volume)
	if err != nil {
		return err
	}
	// Before the call, for a concurrent try to create the volume.
	d.tracker.deleted.Set(volume.Name, nil, deletedPeriod)
	if err := d.calls.delete(ctx, &csi.DeleteVolumeRequest{VolumeId: source.VolumeHandle, Secrets: secrets}, migrated); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Deleted volume", logkeys.PV, volume.Name, logkeys.VolumeHandle, source.VolumeHandle)
	return nil
}

// secrets tolerates a secret that does not exist any more: often it went with the
// claim's namespace, and the driver knows whether it needs it.
func (d *deleter) secrets(ctx context.Context, volume *corev1.PersistentVolume) (map[string]string, error) {
	ref, known, err := plan.DeletionSecret(volume)
	if err != nil {
		return nil, err
	}
	if !known {
		if ref, err = d.classSecret(ctx, volume); err != nil {
			return nil, err
		}
	}
	secrets, err := d.calls.readSecret(ctx, ref, plan.DeletionSecretNamedBy(known))
	if apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Info("Deleting volume without its secret, which does not exist", logkeys.PV, volume.Name, logkeys.Secret, ref.String())
		return nil, nil
	}
	return secrets, err
}

func (d *deleter) classSecret(ctx context.Context, volume *corev1.PersistentVolume) (plan.SecretRef, error) {
	class, err := d.config.Cluster.Class(ctx, volume.Spec.StorageClassName)
	if apierrors.IsNotFound(err) {
		return plan.SecretRef{}, nil
	}
	if err != nil {
		return plan.SecretRef{}, fmt.Errorf("look up the deletion secret: %w", err)
	}
	return plan.ClassDeletionSecret(class.Parameters, volume)
}
