package plan

import (
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

const (
	claimNameParameter      = reservedPrefix + "pvc/name"
	claimNamespaceParameter = reservedPrefix + "pvc/namespace"
	pvNameParameter         = reservedPrefix + "pv/name"
)

// Options are the same for every claim.
type Options struct {
	// DriverName is the CSI driver's own name for itself.
	DriverName string
	// Identity of this provisioner, kept in the volumes it makes.
	Identity string
	// DefaultFSType is used when a class names none; empty leaves it to the driver.
	DefaultFSType string
	// ExtraCreateMetadata passes the names of claim and volume to the driver.
	ExtraCreateMetadata bool
	// ReadOnlyPublish marks volumes of claims that are only ROX as read-only.
	ReadOnlyPublish bool
	// SingleNodeMultiWriter is the driver's capability of that name: it tells
	// ReadWriteOnce from ReadWriteOncePod.
	SingleNodeMultiWriter bool
}

// Creation is the decision to make one volume: all there is to say of it before
// the driver has answered. It can be stored and taken up by another process.
type Creation struct {
	// Request has no secrets yet.
	Request *csi.CreateVolumeRequest
	// Secret is what the request needs, nil for none.
	Secret *SecretRef
	// SecretNamedBy says where Secret comes from.
	SecretNamedBy string
	// Template is the PersistentVolume but for what the driver answers.
	Template *corev1.PersistentVolume
	// Origin is what the volume is filled from, nil for an empty volume.
	Origin *Origin
	// Migrated has the PersistentVolume saved as one of the in-tree plugin that its
	// class names. Everything here is in the driver's terms.
	Migrated bool
	// Began is when the volume was noted to be in the making, zero where the note is
	// of a version that did not say.
	Began time.Time
	// Made is the driver's answer, nil as long as it has not given one that can be used.
	Made *csi.CreateVolumeResponse

	placed placed
}

// NewCreation decides what to ask of the driver for a claim. Everything that can
// be wrong without asking the driver is found here, so that no volume is made
// for which no PersistentVolume could be written.
func NewCreation(options Options, claim *corev1.PersistentVolumeClaim, storageClass *storagev1.StorageClass, pvName string) (*Creation, error) {
	if err := checkClaim(claim); err != nil {
		return nil, err
	}
	class, err := ParseClass(storageClass.Parameters)
	if err != nil {
		return nil, err
	}
	secrets := map[Purpose]*SecretRef{}
	subject := ClaimSubject(claim, pvName)
	for _, purpose := range purposes() {
		if secrets[purpose], err = class.Secret(purpose, subject); err != nil {
			return nil, err
		}
	}
	fsType := fsType(options, class, claim)
	capability, err := capability(options, claim, storageClass, fsType)
	if err != nil {
		return nil, err
	}
	parameters, err := parameters(options, class, claim, pvName)
	if err != nil {
		return nil, err
	}
	return &Creation{
		Request: &csi.CreateVolumeRequest{
			Name:               pvName,
			Parameters:         parameters,
			CapacityRange:      &csi.CapacityRange{RequiredBytes: requestedBytes(claim)},
			VolumeCapabilities: []*csi.VolumeCapability{capability},
		},
		Secret:        secrets[ProvisionerSecret],
		SecretNamedBy: class.NamedBy(ProvisionerSecret),
		Template:      template(options, claim, storageClass, pvName, fsType, secrets),
	}, nil
}

// checkClaim refuses what would otherwise be silently left out of the volume.
func checkClaim(claim *corev1.PersistentVolumeClaim) error {
	switch spec := claim.Spec; {
	case spec.Selector != nil:
		return fmt.Errorf("%w: it has a selector, which only chooses among existing volumes; remove spec.selector to have one made", ErrClaim)
	case requestedBytes(claim) <= 0:
		return fmt.Errorf("%w: it requests no storage", ErrClaim)
	}
	return nil
}

func requestedBytes(claim *corev1.PersistentVolumeClaim) int64 {
	request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return request.Value()
}

func isBlock(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

func fsType(options Options, class Class, claim *corev1.PersistentVolumeClaim) string {
	switch {
	case isBlock(claim):
		return ""
	case class.FSType != "":
		return class.FSType
	default:
		return options.DefaultFSType
	}
}

func capability(options Options, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, fsType string) (*csi.VolumeCapability, error) {
	mode, err := accessmodes.ToCSIAccessMode(claim.Spec.AccessModes, options.SingleNodeMultiWriter)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClaim, err)
	}
	capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	if isBlock(claim) {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return capability, nil
	}
	capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
		FsType:     fsType,
		MountFlags: class.MountOptions,
	}}
	return capability, nil
}

func parameters(options Options, class Class, claim *corev1.PersistentVolumeClaim, pvName string) (map[string]string, error) {
	parameters, err := class.expanded(ClaimSubject(claim, pvName))
	if err != nil {
		return nil, err
	}
	if options.ExtraCreateMetadata {
		parameters[claimNameParameter] = claim.Name
		parameters[claimNamespaceParameter] = claim.Namespace
		parameters[pvNameParameter] = pvName
	}
	return parameters, nil
}
