package provisioner

import (
	"k8s.io/apimachinery/pkg/api/meta"
)

// trim drops what nothing here reads before an object enters a cache: of most
// objects, managed fields are the larger half. Only what is written with a patch
// or never may lose more than that.
func trim(obj any) (any, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		// Tombstones are no objects.
		return obj, nil
	}
	accessor.SetManagedFields(nil)
	return obj, nil
}
