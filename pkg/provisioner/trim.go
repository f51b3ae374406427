package provisioner

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trim drops what nothing here reads before an object enters a cache: of most
// objects, managed fields are the larger half. More must stay of claims, since
// they are written back as a whole.
func trim(obj any) (any, error) {
	// Tombstones are no objects.
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	if volume, ok := obj.(*corev1.PersistentVolume); ok {
		trimVolume(volume)
	}
	return obj, nil
}

// trimVolume keeps what tells whose a volume is and what its deletion needs.
// Volumes are patched, never written back. Those that are not CSI's keep their
// source: it may have to be translated.
func trimVolume(volume *corev1.PersistentVolume) {
	spec := &volume.Spec
	spec.Capacity, spec.AccessModes, spec.MountOptions = nil, nil, nil
	if spec.CSI != nil {
		spec.CSI.VolumeAttributes = nil
	}
}
