package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func (c *controller) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	capacity, err := c.expand(ctx, req)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: capacity}, nil
}

func (c *controller) expand(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (capacity int64, err error) {
	id, err := parseID("volume", req.GetVolumeId(), volume.ParseID)
	static := errors.Is(err, volume.ErrForeignID)
	if err != nil && !static {
		return 0, err
	}
	if req.GetVolumeCapability() != nil {
		if err := checkCapability(req.GetVolumeCapability()); err != nil {
			return 0, err
		}
	}
	size := store.SizeRange{Required: req.GetCapacityRange().GetRequiredBytes(), Limit: req.GetCapacityRange().GetLimitBytes()}
	if static { // only its PersistentVolume has a size
		return requested(size)
	}
	return c.volumes.Expand(ctx, id, size, secretOptions(req.GetSecrets()))
}

// requested is the new capacity of a volume for which no size is recorded.
func requested(size store.SizeRange) (int64, error) {
	if size == (store.SizeRange{}) {
		return 0, fmt.Errorf("%w: no capacity range", volume.ErrInvalid)
	}
	return size.Choose()
}

func (c *controller) ControllerModifyVolume(ctx context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	id, err := parseID("volume", req.GetVolumeId(), volume.ParseID)
	if err != nil {
		return nil, toStatus(err)
	}
	change, err := volume.ParseMutable(req.GetMutableParameters())
	if err != nil {
		return nil, toStatus(err)
	}
	if err := c.volumes.Modify(ctx, id, change, secretOptions(req.GetSecrets())); err != nil {
		return nil, toStatus(err)
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}
