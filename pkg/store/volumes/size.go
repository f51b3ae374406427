package volumes

import (
	"fmt"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// SizeRange is what a request asks for, in bytes; 0 is not said.
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

// Choose returns the capacity of a new volume: as little as will do.
func (r SizeRange) Choose() (int64, error) {
	if r.Required < 0 || r.Limit < 0 {
		return 0, fmt.Errorf("%w: a negative size", volume.ErrInvalid)
	}
	if r.Limit > 0 && r.Required > r.Limit {
		return 0, fmt.Errorf("%w: %d bytes are required and %d are the limit", volume.ErrOutOfRange, r.Required, r.Limit)
	}
	return r.Required, nil
}

// Contains tells whether a volume of this capacity is what is asked for.
func (r SizeRange) Contains(capacity int64) bool {
	return capacity >= r.Required && (r.Limit == 0 || capacity <= r.Limit)
}
