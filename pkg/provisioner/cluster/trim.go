package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// trimmer drops unused fields from objects before they enter a cache.
type trimmer struct {
	// node is the only one that is served, zero for the whole cluster.
	node  plan.Node
	sizes *shared[corev1.ResourceList]
	texts *shared[map[string]string]
}

func newTrimmer(node plan.Node) *trimmer {
	return &trimmer{node: node, sizes: newShared[corev1.ResourceList](), texts: newShared[map[string]string]()}
}

// trim is a cache.TransformFunc. Managed fields are the larger half of most objects.
// Claims keep everything else, since they are written back as a whole.
func (t *trimmer) trim(obj any) (any, error) {
	// Tombstones are not objects.
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
		object.SetAnnotations(t.text(object.GetAnnotations()))
		object.SetLabels(t.text(object.GetLabels()))
	}
	switch object := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		object.Spec.Resources.Requests = t.size(object.Spec.Resources.Requests)
		object.Status.Capacity = t.size(object.Status.Capacity)
	case *corev1.PersistentVolume:
		t.trimVolume(object)
	case *corev1.Node:
		trimNode(object)
	}
	return obj, nil
}

func (t *trimmer) size(list corev1.ResourceList) corev1.ResourceList {
	size, ok := list[corev1.ResourceStorage]
	if !ok || len(list) > 1 {
		return list
	}
	return t.sizes.of(size.String(), list)
}

func (t *trimmer) text(values map[string]string) map[string]string {
	key, ok := mapKey(values)
	if !ok || len(values) == 0 {
		return values
	}
	return t.texts.of(key, values)
}

// trimVolume keeps what identifies a volume and what its deletion needs. Volumes are
// patched, never written back. A source other than CSI may have to be translated.
// plan.Node needs the identity where there is no node affinity.
func (t *trimmer) trimVolume(volume *corev1.PersistentVolume) {
	spec := &volume.Spec
	spec.Capacity, spec.AccessModes, spec.MountOptions = nil, nil, nil
	if spec.CSI == nil {
		return
	}
	identity := spec.CSI.VolumeAttributes[plan.IdentityAttribute]
	spec.CSI.VolumeAttributes = nil
	if identity != "" && spec.NodeAffinity == nil && !t.node.IsZero() {
		spec.CSI.VolumeAttributes = t.text(map[string]string{plan.IdentityAttribute: identity})
	}
}

// trimNode keeps the labels; images and conditions are most of a node.
func trimNode(node *corev1.Node) {
	node.Annotations = nil
	node.Spec, node.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
}
