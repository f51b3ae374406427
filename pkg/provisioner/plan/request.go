package plan

import (
	"cmp"
	"fmt"
	"slices"
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

// Options apply to every claim.
type Options struct {
	// Driver is what the CSI driver declares.
	Driver Capabilities
	// Identity of this provisioner, recorded in its volumes.
	Identity string
	// DefaultFSType applies when a class names none; empty leaves it to the driver.
	DefaultFSType string
	// ExtraCreateMetadata passes the names of claim and volume to the driver.
	ExtraCreateMetadata bool
	// ReadOnlyPublish marks volumes of claims that are only ROX as read-only.
	ReadOnlyPublish bool
	// PreventModeConversion refuses to restore a snapshot to the other volume
	// mode, unless its content allows it.
	PreventModeConversion bool
	// CrossNamespaceSources and AttributesClasses are feature gates.
	CrossNamespaceSources bool
	AttributesClasses     bool
}

// Creation is the decision to create one volume. It can be stored and continued by
// another process.
type Creation struct {
	// Request does not have the secrets.
	Request *csi.CreateVolumeRequest
	// Secret is the request's, zero for none.
	Secret SecretRef
	// SecretNamedBy says what names Secret.
	SecretNamedBy string
	// Template is the PersistentVolume without what the driver responds.
	Template *corev1.PersistentVolume
	// Origin is what the volume is filled from, zero for an empty volume.
	Origin Origin
	// Migrated saves the PersistentVolume as one of the in-tree plugin that its class
	// names. Everything in a Creation is translated for the driver.
	Migrated bool
	// Began is when the volume was recorded in the journal, zero if an earlier version
	// recorded it.
	Began time.Time
	// Response is the driver's response, nil until there is a usable one.
	Response *csi.CreateVolumeResponse

	placed placed
}

// NewCreation decides what to request from the driver for a claim. It finds every
// error that can be found without the driver, so that no volume is created for
// which no PersistentVolume could be written.
func NewCreation(options Options, claim *corev1.PersistentVolumeClaim, storageClass *storagev1.StorageClass, pvName string) (*Creation, error) {
	if err := checkClaim(claim); err != nil {
		return nil, err
	}
	class, err := ParseClass(storageClass.Parameters)
	if err != nil {
		return nil, err
	}
	d := draft{options: options, claim: claim, storageClass: storageClass, class: class, pvName: pvName, secrets: map[Purpose]SecretRef{}}
	subject := ClaimSubject(claim, pvName)
	for _, purpose := range purposes() {
		if d.secrets[purpose], err = class.Secret(purpose, subject); err != nil {
			return nil, err
		}
	}
	capabilities, err := d.capabilities()
	if err != nil {
		return nil, err
	}
	parameters, err := d.parameters()
	if err != nil {
		return nil, err
	}
	return &Creation{
		Request: &csi.CreateVolumeRequest{
			Name:               pvName,
			Parameters:         parameters,
			CapacityRange:      &csi.CapacityRange{RequiredBytes: requestedBytes(claim)},
			VolumeCapabilities: capabilities,
		},
		Secret:        d.secrets[ProvisionerSecret],
		SecretNamedBy: class.NamedBy(ProvisionerSecret),
		Template:      d.template(),
	}, nil
}

// NewAnnouncement asks for the capacity that volumes of a class have where the driver
// would mount them.
func NewAnnouncement(options Options, storageClass *storagev1.StorageClass) (*csi.GetCapacityRequest, error) {
	class, err := ParseClass(storageClass.Parameters)
	if err != nil {
		return nil, err
	}
	return &csi.GetCapacityRequest{
		Parameters: class.Common(),
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
				FsType:     cmp.Or(class.FSType, options.DefaultFSType),
				MountFlags: storageClass.MountOptions,
			}},
		}},
	}, nil
}

// draft is the input of a Creation.
type draft struct {
	options      Options
	claim        *corev1.PersistentVolumeClaim
	storageClass *storagev1.StorageClass
	class        Class
	pvName       string
	secrets      map[Purpose]SecretRef
}

// checkClaim refuses what the volume would otherwise silently lack.
func checkClaim(claim *corev1.PersistentVolumeClaim) error {
	switch spec := claim.Spec; {
	case spec.Selector != nil:
		return fmt.Errorf("%w: it has a selector, which only matches existing volumes; remove spec.selector to provision one", ErrClaim)
	case requestedBytes(claim) <= 0:
		return fmt.Errorf("%w: it requests no storage", ErrClaim)
	case len(spec.AccessModes) == 0:
		return fmt.Errorf("%w: it has no access modes", ErrClaim)
	case len(spec.AccessModes) > 1 && slices.Contains(spec.AccessModes, corev1.ReadWriteOncePod):
		return fmt.Errorf("%w: its access modes are %v; ReadWriteOncePod cannot be combined with others", ErrClaim, spec.AccessModes)
	}
	return nil
}

func requestedBytes(claim *corev1.PersistentVolumeClaim) int64 {
	request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return request.Value()
}

func isBlock(claim *corev1.PersistentVolumeClaim) bool {
	return volumeMode(claim) == corev1.PersistentVolumeBlock
}

func (d draft) fsType() string {
	switch {
	case isBlock(d.claim):
		return ""
	case d.class.FSType != "":
		return d.class.FSType
	default:
		return d.options.DefaultFSType
	}
}

// capabilities are one for each access mode, in the claim's order: the driver decides
// which modes can be combined.
func (d draft) capabilities() ([]*csi.VolumeCapability, error) {
	var all []*csi.VolumeCapability
	for _, mode := range d.claim.Spec.AccessModes {
		mapped, err := accessmodes.ToCSIAccessMode([]corev1.PersistentVolumeAccessMode{mode}, d.options.Driver.SingleNodeMultiWriter)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrClaim, err)
		}
		all = append(all, d.capability(mapped))
	}
	return all, nil
}

func (d draft) capability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	if isBlock(d.claim) {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return capability
	}
	capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
		FsType:     d.fsType(),
		MountFlags: d.storageClass.MountOptions,
	}}
	return capability
}

func (d draft) parameters() (map[string]string, error) {
	parameters, err := d.class.expanded(ClaimSubject(d.claim, d.pvName))
	if err != nil {
		return nil, err
	}
	if d.options.ExtraCreateMetadata {
		parameters[claimNameParameter] = d.claim.Name
		parameters[claimNamespaceParameter] = d.claim.Namespace
		parameters[pvNameParameter] = d.pvName
	}
	return parameters, nil
}
