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
// pod (level 0), its controller (1), the controller of that (2), and so on. It reads the
// objects below the owner, not the owner itself.
func Owner(ctx context.Context, client metadata.Interface, namespace, pod string, level int) ([]metav1.OwnerReference, error) {
	if level <= NoOwner {
		return nil, nil
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod}
	object, err := get(ctx, client, namespace, owner)
	if err != nil {
		return nil, err
	}
	owner.UID = object.UID
	for up := range level {
		if up > 0 {
			if object, err = get(ctx, client, namespace, owner); err != nil {
				return nil, err
			}
		}
		controller := metav1.GetControllerOf(object)
		if controller == nil {
			return nil, fmt.Errorf("owner of capacity objects: %s %s/%s has no controller; level %d was requested", owner.Kind, namespace, owner.Name, level)
		}
		owner = metav1.OwnerReference{APIVersion: controller.APIVersion, Kind: controller.Kind, Name: controller.Name, UID: controller.UID}
	}
	return []metav1.OwnerReference{owner}, nil
}

func get(ctx context.Context, client metadata.Interface, namespace string, what metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	version, err := schema.ParseGroupVersion(what.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("owner of capacity objects: %w", err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(version.WithKind(what.Kind))
	object, err := client.Resource(resource).Namespace(namespace).Get(ctx, what.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("owner of capacity objects: %w", err)
	}
	return object, nil
}
