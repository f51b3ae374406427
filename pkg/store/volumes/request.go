package volumes

import (
	"fmt"
	"maps"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// SameRequest returns an error unless have, an existing record, satisfies the request for
// want.
//
// Errors: volume.ErrOwned, volume.ErrIncompatible.
func SameRequest(have, want catalog.Record, size SizeRange) error {
	switch {
	case have.Shared != want.Shared:
		return ownedSharedError(have, want)
	case have.Shared == catalog.SharedDirectory:
		return nil
	case have.Name != want.Name:
		return ownedError(have, want)
	case !maps.Equal(have.Parameters, want.Parameters):
		return fmt.Errorf("%w: the volume has the parameters %v, the request %v", volume.ErrIncompatible, have.Parameters, want.Parameters)
	case have.Source != want.Source:
		return fmt.Errorf("%w: the volume has the source %q, the request %q", volume.ErrIncompatible, have.Source, want.Source)
	case !size.Contains(have.Capacity):
		return fmt.Errorf("%w: the volume has %d bytes, the request needs %s", volume.ErrIncompatible, have.Capacity, size)
	}
	return nil
}
