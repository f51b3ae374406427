package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// IdentityAttribute has Options.Identity in the attributes of a volume.
	IdentityAttribute = "storage.kubernetes.io/csiProvisionerIdentity"

	modifySecretNameAnnotation      = "volume.kubernetes.io/controller-modify-secret-name"
	modifySecretNamespaceAnnotation = "volume.kubernetes.io/controller-modify-secret-namespace"
	provisionedByAnnotation         = "pv.kubernetes.io/provisioned-by"

	// VolumeFinalizer is the library's. It keeps a PersistentVolume until its volume is
	// deleted.
	VolumeFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
)

// Volume is the PersistentVolume of a response. If the volume must not be used, it
// returns an error that wraps ErrResponse.
func (c *Creation) Volume(response *csi.CreateVolumeResponse) (*corev1.PersistentVolume, error) {
	made := response.GetVolume()
	if made.GetVolumeId() == "" {
		return nil, fmt.Errorf("%w: volume %s was created without an ID", ErrResponse, c.Request.GetName())
	}
	wanted := c.Request.GetCapacityRange().GetRequiredBytes()
	size := made.GetCapacityBytes()
	if size != 0 && size < wanted {
		return nil, fmt.Errorf("%w: volume %s has %d bytes, at least %d were requested",
			ErrResponse, c.Request.GetName(), size, wanted)
	}
	if c.Request.GetVolumeContentSource() != nil && made.GetContentSource() == nil {
		return nil, fmt.Errorf("%w: volume %s was created without the requested content",
			ErrResponse, c.Request.GetName())
	}
	volume := c.Template.DeepCopy()
	if size != 0 { // 0 is unknown, which CSI allows
		volume.Spec.Capacity[corev1.ResourceStorage] = *resource.NewQuantity(size, resource.BinarySI)
	}
	source := volume.Spec.CSI
	source.VolumeHandle = made.GetVolumeId()
	identity := source.VolumeAttributes[IdentityAttribute]
	source.VolumeAttributes = map[string]string{}
	maps.Copy(source.VolumeAttributes, made.GetVolumeContext())
	source.VolumeAttributes[IdentityAttribute] = identity
	volume.Spec.NodeAffinity = c.nodeAffinity(made)
	return volume, nil
}

// template is the PersistentVolume as far as it is known before the volume exists.
func (d draft) template() *corev1.PersistentVolume {
	claim, class, secrets := d.claim, d.storageClass, d.secrets
	annotations := annotations(secrets)
	annotations[provisionedByAnnotation] = class.Provisioner
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: d.pvName, Annotations: annotations, Finalizers: []string{VolumeFinalizer}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			MountOptions:                  class.MountOptions,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			VolumeMode:                    new(volumeMode(claim)),
			ClaimRef:                      claimReference(claim),
			StorageClassName:              class.Name,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver:                     d.options.Driver.DriverName,
				ReadOnly:                   d.readOnly(),
				FSType:                     d.fsType(),
				VolumeAttributes:           map[string]string{IdentityAttribute: d.options.Identity},
				ControllerPublishSecretRef: secrets[ControllerPublishSecret].Reference(),
				NodeStageSecretRef:         secrets[NodeStageSecret].Reference(),
				NodePublishSecretRef:       secrets[NodePublishSecret].Reference(),
				ControllerExpandSecretRef:  secrets[ControllerExpandSecret].Reference(),
				NodeExpandSecretRef:        secrets[NodeExpandSecret].Reference(),
			}},
		},
	}
}

// claimReference binds the volume to this claim, and to no other of the same name.
func claimReference(claim *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		Kind:            "PersistentVolumeClaim",
		APIVersion:      corev1.SchemeGroupVersion.String(),
		Namespace:       claim.Namespace,
		Name:            claim.Name,
		UID:             claim.UID,
		ResourceVersion: claim.ResourceVersion,
	}
}

// annotations always include the deletion secret, empty for none: years later the class
// may be another one.
func annotations(secrets map[Purpose]SecretRef) map[string]string {
	deletion := secrets[ProvisionerSecret]
	annotations := map[string]string{
		deletionSecretNameAnnotation:      deletion.Name,
		deletionSecretNamespaceAnnotation: deletion.Namespace,
	}
	if modify := secrets[ControllerModifySecret]; !modify.IsZero() {
		annotations[modifySecretNameAnnotation] = modify.Name
		annotations[modifySecretNamespaceAnnotation] = modify.Namespace
	}
	return annotations
}

func volumeMode(claim *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	return ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

func (d draft) readOnly() bool {
	writable := func(mode corev1.PersistentVolumeAccessMode) bool { return mode != corev1.ReadOnlyMany }
	return d.options.ReadOnlyPublish && !slices.ContainsFunc(d.claim.Spec.AccessModes, writable)
}
