package plan

import (
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// identityAttribute is the key of Options.Identity in a volume's attributes.
	identityAttribute = "storage.kubernetes.io/csiProvisionerIdentity"

	modifySecretNameAnnotation      = "volume.kubernetes.io/controller-modify-secret-name"
	modifySecretNamespaceAnnotation = "volume.kubernetes.io/controller-modify-secret-namespace"
)

// Volume is the PersistentVolume for what the driver made. The library adds the
// claim's reference, the class's name, the finalizer and the provisioned-by
// annotation. An error wraps ErrResponse; the volume then must not be used.
func (c *Creation) Volume(response *csi.CreateVolumeResponse) (*corev1.PersistentVolume, error) {
	made := response.GetVolume()
	if made.GetVolumeId() == "" {
		return nil, fmt.Errorf("%w: volume %s was created without an ID", ErrResponse, c.Request.GetName())
	}
	wanted := c.Request.GetCapacityRange().GetRequiredBytes()
	if size := made.GetCapacityBytes(); size != 0 && size < wanted {
		return nil, fmt.Errorf("%w: volume %s has %d bytes, at least %d were requested",
			ErrResponse, c.Request.GetName(), size, wanted)
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: c.pvName, Annotations: c.annotations()},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   c.claim.Spec.AccessModes,
			MountOptions:                  c.class.MountOptions,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: c.capacity(made)},
			PersistentVolumeReclaimPolicy: c.reclaimPolicy(),
			VolumeMode:                    c.volumeMode(),
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: c.source(made)},
		},
	}, nil
}

func (c *Creation) source(made *csi.Volume) *corev1.CSIPersistentVolumeSource {
	attributes := map[string]string{}
	maps.Copy(attributes, made.GetVolumeContext())
	attributes[identityAttribute] = c.options.Identity
	return &corev1.CSIPersistentVolumeSource{
		Driver:                     c.options.DriverName,
		VolumeHandle:               made.GetVolumeId(),
		ReadOnly:                   c.readOnly(),
		FSType:                     c.fsType,
		VolumeAttributes:           attributes,
		ControllerPublishSecretRef: c.secrets[ControllerPublishSecret].Reference(),
		NodeStageSecretRef:         c.secrets[NodeStageSecret].Reference(),
		NodePublishSecretRef:       c.secrets[NodePublishSecret].Reference(),
		ControllerExpandSecretRef:  c.secrets[ControllerExpandSecret].Reference(),
		NodeExpandSecretRef:        c.secrets[NodeExpandSecret].Reference(),
	}
}

// annotations always has the deletion secret's two, empty for none, so that a
// deletion years later need not ask a class that may be another one by then.
func (c *Creation) annotations() map[string]string {
	deletion := SecretRef{}
	if c.Secret != nil {
		deletion = *c.Secret
	}
	annotations := map[string]string{
		deletionSecretNameAnnotation:      deletion.Name,
		deletionSecretNamespaceAnnotation: deletion.Namespace,
	}
	if modify := c.secrets[ControllerModifySecret]; modify != nil {
		annotations[modifySecretNameAnnotation] = modify.Name
		annotations[modifySecretNamespaceAnnotation] = modify.Namespace
	}
	return annotations
}

func (c *Creation) capacity(made *csi.Volume) resource.Quantity {
	if size := made.GetCapacityBytes(); size != 0 {
		return *resource.NewQuantity(size, resource.BinarySI)
	}
	// The driver does not know, which CSI allows.
	return c.claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

func (c *Creation) reclaimPolicy() corev1.PersistentVolumeReclaimPolicy {
	if c.class.ReclaimPolicy != nil {
		return *c.class.ReclaimPolicy
	}
	return corev1.PersistentVolumeReclaimDelete
}

func (c *Creation) volumeMode() *corev1.PersistentVolumeMode {
	mode := corev1.PersistentVolumeFilesystem
	if isBlock(c.claim) {
		mode = corev1.PersistentVolumeBlock
	}
	return &mode
}

func (c *Creation) readOnly() bool {
	if !c.options.ReadOnlyPublish {
		return false
	}
	for _, mode := range c.claim.Spec.AccessModes {
		if mode != corev1.ReadOnlyMany {
			return false
		}
	}
	return true
}
