package plan

import (
	"fmt"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// allowModeChange on a VolumeSnapshotContent allows to restore it to the other volume
// mode.
const allowModeChange = "snapshot.storage.kubernetes.io/allow-volume-mode-change"

// Snapshot is the part of a VolumeSnapshot (snapshot.storage.k8s.io/v1) that is used.
type Snapshot struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            SnapshotStatus `json:"status,omitempty"`
}

// SnapshotStatus is the status of a Snapshot.
type SnapshotStatus struct {
	BoundVolumeSnapshotContentName string             `json:"boundVolumeSnapshotContentName,omitempty"`
	ReadyToUse                     bool               `json:"readyToUse,omitempty"`
	RestoreSize                    *resource.Quantity `json:"restoreSize,omitempty"`
}

// SnapshotContent is the part of a VolumeSnapshotContent that is used.
type SnapshotContent struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              SnapshotContentSpec   `json:"spec"`
	Status            SnapshotContentStatus `json:"status,omitempty"`
}

// SnapshotContentSpec is the spec of a SnapshotContent.
type SnapshotContentSpec struct {
	Driver            string                      `json:"driver"`
	SourceVolumeMode  corev1.PersistentVolumeMode `json:"sourceVolumeMode,omitempty"`
	VolumeSnapshotRef SnapshotReference           `json:"volumeSnapshotRef"`
}

// SnapshotReference names the Snapshot that a SnapshotContent is bound to.
type SnapshotReference struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// SnapshotContentStatus is the status of a SnapshotContent.
type SnapshotContentStatus struct {
	SnapshotHandle string `json:"snapshotHandle,omitempty"`
}

// CheckSnapshot decides whether a snapshot can be restored, before its content is read.
func CheckSnapshot(snapshot *Snapshot) error {
	switch {
	case snapshot.DeletionTimestamp != nil:
		return refuseSnapshot(snapshot, "it is being deleted")
	case snapshot.Status.BoundVolumeSnapshotContentName == "":
		return refuseSnapshot(snapshot, "it is not bound to a VolumeSnapshotContent yet")
	case !snapshot.Status.ReadyToUse:
		return refuseSnapshot(snapshot, "it is not ready to use yet")
	}
	return nil
}

// RestoreContent decides whether a claim's volume can be restored from a snapshot
// that CheckSnapshot has passed.
func RestoreContent(claim *corev1.PersistentVolumeClaim, snapshot *Snapshot, content *SnapshotContent, options Options) (*csi.VolumeContentSource, error) {
	bound := content.Spec.VolumeSnapshotRef
	switch {
	case bound.UID != snapshot.UID || bound.Namespace != snapshot.Namespace || bound.Name != snapshot.Name:
		return nil, refuseSnapshot(snapshot, "VolumeSnapshotContent %s is bound to another snapshot", content.Name)
	case content.Spec.Driver != options.Driver.DriverName:
		return nil, refuseSnapshot(snapshot, "it belongs to CSI driver %s, but the claim uses %s", content.Spec.Driver, options.Driver.DriverName)
	case content.Status.SnapshotHandle == "":
		return nil, refuseSnapshot(snapshot, "VolumeSnapshotContent %s has no snapshot handle yet", content.Name)
	case options.PreventModeConversion && changesMode(claim, content):
		return nil, refuseSnapshot(snapshot, "its volume mode is %s, and VolumeSnapshotContent %s lacks the annotation %s: \"true\"",
			content.Spec.SourceVolumeMode, content.Name, allowModeChange)
	}
	if size := snapshot.Status.RestoreSize; size != nil && size.Value() > requestedBytes(claim) {
		return nil, refuseSnapshot(snapshot, "it needs %d bytes, which is more than the %d that are requested", size.Value(), requestedBytes(claim))
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: content.Status.SnapshotHandle},
	}}, nil
}

func refuseSnapshot(snapshot *Snapshot, why string, args ...any) error {
	return fmt.Errorf("%w from VolumeSnapshot %s/%s: %s", ErrSource, snapshot.Namespace, snapshot.Name, fmt.Sprintf(why, args...))
}

func changesMode(claim *corev1.PersistentVolumeClaim, content *SnapshotContent) bool {
	source := content.Spec.SourceVolumeMode
	allowed, err := strconv.ParseBool(content.Annotations[allowModeChange])
	return source != "" && source != volumeMode(claim) && (err != nil || !allowed)
}
