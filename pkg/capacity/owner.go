package capacity

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// NoOwner is the level that leaves the objects without an owner.
const NoOwner = -1

// Owner looks up the owner of the objects, with which they are garbage-collected: the
// pod (level 0), its controller (1), the controller of that (2), and so on.
func Owner(ctx context.Context, client metadata.Interface, namespace, pod string, level int) ([]metav1.OwnerReference, error) {
	if level <= NoOwner {
		return nil, nil
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod}
	for up := range level + 1 {
		version, err := schema.ParseGroupVersion(owner.APIVersion)
		if err != nil {
			return nil, fmt.Errorf("owner of capacity objects: %w", err)
		}
		resource, _ := meta.UnsafeGuessKindToResource(version.WithKind(owner.Kind))
		object, err := client.Resource(resource).Namespace(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("owner of capacity objects: %w", err)
		}
		owner.UID = object.UID
		if up == level {
			break
		}
		controller := metav1.GetControllerOf(object)
		if controller == nil {
			return nil, fmt.Errorf("owner of capacity objects: %s %s/%s has no controller; level %d was requested", owner.Kind, namespace, owner.Name, level)
		}
		owner = metav1.OwnerReference{APIVersion: controller.APIVersion, Kind: controller.Kind, Name: controller.Name}
	}
	return []metav1.OwnerReference{owner}, nil
}
