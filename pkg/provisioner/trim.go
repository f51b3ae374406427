package provisioner

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mostShared bounds what a trimmer remembers; in a cluster there are few sizes.
const mostShared = 1000

// trimmer makes objects small before they enter a cache.
type trimmer struct {
	mu       sync.Mutex
	requests map[string]corev1.ResourceList
}

func newTrimmer() *trimmer { return &trimmer{requests: map[string]corev1.ResourceList{}} }

// trim drops what nothing here reads before an object enters a cache: of most
// objects, managed fields are the larger half. More must stay of claims, since
// they are written back as a whole.
func (t *trimmer) trim(obj any) (any, error) {
	// Tombstones are no objects.
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	switch object := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		object.Spec.Resources.Requests = t.shared(object.Spec.Resources.Requests)
		object.Status.Capacity = t.shared(object.Status.Capacity)
	case *corev1.PersistentVolume:
		trimVolume(object)
	case *corev1.Node:
		trimNode(object)
	}
	return obj, nil
}

// shared is the same list for all claims of one size: nothing modifies an object in
// a cache, and a map of its own makes up a third of a claim.
func (t *trimmer) shared(list corev1.ResourceList) corev1.ResourceList {
	size, ok := list[corev1.ResourceStorage]
	if !ok || len(list) > 1 {
		return list
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := size.String()
	if known, ok := t.requests[key]; ok {
		return known
	}
	if len(t.requests) < mostShared {
		t.requests[key] = list
	}
	return list
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

// trimNode keeps the labels: of nodes, images and conditions are most.
func trimNode(node *corev1.Node) {
	node.Annotations = nil
	node.Spec, node.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
}
