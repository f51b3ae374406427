package provisioner

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// remove deletes what is behind a PersistentVolume. Every error is retried.
func (p *Provisioner) remove(ctx context.Context, volume *corev1.PersistentVolume) error {
	if !p.migration.MayDelete(volume) {
		return &controller.IgnoredError{Reason: "the in-tree plugin has not left it to a CSI driver"}
	}
	ctx = aboutMigrated(ctx, volume.Spec.CSI == nil)
	volume, err := p.migration.Volume(klog.FromContext(ctx), volume)
	if err != nil {
		return err
	}
	source := volume.Spec.CSI
	driver := p.config.Driver.Capabilities().DriverName
	if source == nil || source.Driver != driver {
		return &controller.IgnoredError{Reason: "it is not a volume of CSI driver " + driver}
	}
	if source.VolumeHandle == "" {
		return fmt.Errorf("%w: %s has no volume handle", plan.ErrVolume, volume.Name)
	}
	if err := p.attachments.refuseAttached(ctx, driver, volume); err != nil {
		return err
	}
	secrets, err := p.deletionSecrets(ctx, volume)
	if err != nil {
		return err
	}
	// Before the call, for a try to make it that runs beside it.
	p.deleted.add(volume.Name, time.Now())
	request := &csi.DeleteVolumeRequest{VolumeId: source.VolumeHandle, Secrets: secrets}
	if _, err := p.config.Driver.DeleteVolume(ctx, request); err != nil {
		return p.failure("DeleteVolume", err, secrets)
	}
	klog.FromContext(ctx).V(2).Info("Volume deleted", logPV, volume.Name, logVolume, source.VolumeHandle)
	return nil
}

// deletionSecrets goes on without a secret that does not exist any longer: often
// it went with the claim's namespace, and the driver can tell whether it needs it.
func (p *Provisioner) deletionSecrets(ctx context.Context, volume *corev1.PersistentVolume) (map[string]string, error) {
	ref, known, err := plan.DeletionSecret(volume)
	if err != nil {
		return nil, err
	}
	if !known {
		if ref, err = p.classSecret(volume); err != nil {
			return nil, err
		}
	}
	secrets, err := p.readSecret(ctx, ref, plan.DeletionSecretNamedBy(known))
	if apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Info("Secret for deletion is gone, deleting without it", logPV, volume.Name, logSecret, ref.String())
		return nil, nil
	}
	return secrets, err
}

func (p *Provisioner) classSecret(volume *corev1.PersistentVolume) (*plan.SecretRef, error) {
	class, err := p.classes.Get(volume.Spec.StorageClassName)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find out about a deletion secret: %w", err)
	}
	if class, _, err = p.migration.Class(klog.Background(), class); err != nil {
		return nil, err
	}
	return plan.ClassDeletionSecret(class.Parameters, volume)
}
