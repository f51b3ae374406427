package provisioner

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// trim drops what nothing here reads before an object enters a cache: of most
// objects, managed fields are the larger half. More must stay, since claims are
// written back as a whole.
func trim(obj any) (any, error) {
	// Tombstones are no objects.
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return obj, nil
}
