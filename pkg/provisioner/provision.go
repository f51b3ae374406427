package provisioner

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// provision makes the volume of one claim. Whatever fails before the driver is
// asked leaves the state as it was: an earlier try may still be under way there.
func (p *Provisioner) provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	creation, err := plan.NewCreation(p.planOptions(), options.PVC, options.StorageClass, options.PVName)
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	secrets, err := p.readSecret(ctx, creation.Secret)
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	creation.Request.Secrets = secrets
	response, err := p.config.Driver.CreateVolume(ctx, creation.Request)
	if err != nil {
		return nil, plan.CreateState(err), p.failure("CreateVolume", err, secrets)
	}
	volume, err := creation.Volume(response)
	if err != nil {
		state, err := p.discard(ctx, response.GetVolume().GetVolumeId(), secrets, err)
		return nil, state, err
	}
	klog.FromContext(ctx).V(2).Info("Volume created", logPVC, klog.KObj(options.PVC),
		logPV, volume.Name, logVolume, volume.Spec.CSI.VolumeHandle)
	return volume, controller.ProvisioningFinished, nil
}

// discard deletes a volume that cannot be used. While that fails the volume is
// there, so the claim stays in progress: the next try gets the same volume from
// the driver and discards it again, also when the claim is deleted meanwhile.
func (p *Provisioner) discard(ctx context.Context, volumeID string, secrets map[string]string, cause error) (controller.ProvisioningState, error) {
	if volumeID == "" {
		// Without an ID there is nothing that could be deleted.
		return controller.ProvisioningFinished, cause
	}
	request := &csi.DeleteVolumeRequest{VolumeId: volumeID, Secrets: secrets}
	if _, err := p.config.Driver.DeleteVolume(ctx, request); err != nil {
		return controller.ProvisioningInBackground,
			fmt.Errorf("%w; it could not be deleted: %w", cause, p.failure("DeleteVolume", err, secrets))
	}
	return controller.ProvisioningFinished, fmt.Errorf("%w; it was deleted", cause)
}

func (p *Provisioner) planOptions() plan.Options {
	facts := p.config.Driver.Facts()
	return plan.Options{
		DriverName:            facts.Name,
		Identity:              p.config.Identity,
		DefaultFSType:         p.config.DefaultFSType,
		ExtraCreateMetadata:   p.config.ExtraCreateMetadata,
		ReadOnlyPublish:       p.config.ReadOnlyPublish,
		SingleNodeMultiWriter: facts.SingleNodeMultiWriter,
	}
}

func (p *Provisioner) failure(method string, err error, secrets map[string]string) error {
	return plan.NewFailure(method, p.config.Driver.Facts().Name, err, redactor(secrets))
}
