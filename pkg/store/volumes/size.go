package volumes

import (
	"fmt"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// SizeRange is the requested size in bytes; 0 means not set.
type SizeRange struct {
	Required int64
	Limit    int64
}

func (r SizeRange) String() string {
	if r.Limit == 0 {
		return fmt.Sprintf("at least %d bytes", r.Required)
	}
	return fmt.Sprintf("%d to %d bytes", r.Required, r.Limit)
}

// Choose returns the capacity of a new volume: the required size.
func (r SizeRange) Choose() (int64, error) {
	if r.Required < 0 || r.Limit < 0 {
		return 0, fmt.Errorf("%w: negative size", volume.ErrInvalid)
	}
	if r.Limit > 0 && r.Required > r.Limit {
		return 0, fmt.Errorf("%w: the required %d bytes exceed the limit of %d", volume.ErrOutOfRange, r.Required, r.Limit)
	}
	return r.Required, nil
}

// Contains reports whether the capacity satisfies the request.
func (r SizeRange) Contains(capacity int64) bool {
	return capacity >= r.Required && (r.Limit == 0 || capacity <= r.Limit)
}
