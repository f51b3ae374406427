package plan

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// ErrSource is wrapped when a volume cannot be filled from its source.
var ErrSource = errors.New("volume cannot be filled")

// OriginKind is the kind of an Origin.
type OriginKind string

// The kinds of sources.
const (
	SnapshotOrigin OriginKind = "VolumeSnapshot"
	ClaimOrigin    OriginKind = "PersistentVolumeClaim"
)

// SnapshotGroup is the API group of VolumeSnapshots.
const SnapshotGroup = "snapshot.storage.k8s.io"

// Origin is the source that a volume is filled from.
type Origin struct {
	Kind      OriginKind `json:"kind"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
}

// IsZero is true for the Origin of an empty volume.
func (o Origin) IsZero() bool { return o == Origin{} }

// String is for messages.
func (o Origin) String() string { return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name) }

// Group is the API group, empty for the core one.
func (o Origin) Group() string {
	if o.Kind == SnapshotOrigin {
		return SnapshotGroup
	}
	return ""
}

// ClaimOriginOf is the origin of a claim's volume, zero for none. foreign is true for a source that a volume populator handles; such
// claims are left alone.
func ClaimOriginOf(claim *corev1.PersistentVolumeClaim) (origin Origin, foreign bool) {
	var group, kind, name string
	namespace := claim.Namespace
	switch spec := claim.Spec; {
	case spec.DataSourceRef != nil:
		// The API server copies dataSource to dataSourceRef, which has more fields.
		source := spec.DataSourceRef
		group, kind, name = ptr.Deref(source.APIGroup, ""), source.Kind, source.Name
		namespace = cmp.Or(ptr.Deref(source.Namespace, ""), namespace)
	case spec.DataSource != nil:
		source := spec.DataSource
		group, kind, name = ptr.Deref(source.APIGroup, ""), source.Kind, source.Name
	default:
		return Origin{}, false
	}
	origin = Origin{Kind: OriginKind(kind), Namespace: namespace, Name: name}
	known := origin.Kind == SnapshotOrigin || origin.Kind == ClaimOrigin
	if !known || group != origin.Group() {
		return Origin{}, true
	}
	return origin, false
}

// CheckOrigin checks what can be decided without reading the origin.
func CheckOrigin(origin Origin, claim *corev1.PersistentVolumeClaim, options Options) error {
	switch {
	case origin.Namespace != claim.Namespace && !options.CrossNamespaceSources:
		return fmt.Errorf("%w: %s is in another namespace, which needs --feature-gates=CrossNamespaceVolumeDataSource=true", ErrSource, origin)
	case origin.Kind == SnapshotOrigin && !options.Driver.Snapshots:
		return fmt.Errorf("%w from %s: CSI driver %s does not declare CREATE_DELETE_SNAPSHOT", ErrSource, origin, options.Driver.DriverName)
	case origin.Kind == ClaimOrigin && !options.Driver.Clones:
		return fmt.Errorf("%w from %s: CSI driver %s does not declare CLONE_VOLUME", ErrSource, origin, options.Driver.DriverName)
	case origin == Origin{Kind: ClaimOrigin, Namespace: claim.Namespace, Name: claim.Name}:
		return fmt.Errorf("%w: the claim names itself as its source", ErrSource)
	}
	return nil
}

// CloneContent decides whether a claim's volume can be cloned from the source claim,
// whose volume is nil if it does not exist.
func CloneContent(claim, source *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, driver string) (*csi.VolumeContentSource, error) {
	refuse := func(why string, args ...any) error {
		return fmt.Errorf("%w from claim %s/%s: %s", ErrSource, source.Namespace, source.Name, fmt.Sprintf(why, args...))
	}
	switch {
	case source.DeletionTimestamp != nil:
		return nil, refuse("it is being deleted")
	case source.Status.Phase != corev1.ClaimBound || source.Spec.VolumeName == "":
		return nil, refuse("it is not bound yet")
	case volume == nil:
		return nil, refuse("its volume %s does not exist", source.Spec.VolumeName)
	case volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != source.UID:
		return nil, refuse("its volume %s is bound to another claim", volume.Name)
	case volume.Spec.CSI == nil || volume.Spec.CSI.Driver != driver:
		return nil, refuse("its volume %s is not one of CSI driver %s", volume.Name, driver)
	case volume.Spec.CSI.VolumeHandle == "":
		return nil, refuse("its volume %s has no volume handle", volume.Name)
	case isBlock(claim) != isBlock(source):
		return nil, refuse("one of the two is a block volume, the other a file system")
	case requestedBytes(claim) < requestedBytes(source):
		return nil, refuse("it has %d bytes, which is more than the %d that are requested", requestedBytes(source), requestedBytes(claim))
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: volume.Spec.CSI.VolumeHandle},
	}}, nil
}
