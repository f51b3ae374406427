package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func (c *controller) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	id, err := parseID("volume", req.GetVolumeId(), volume.ParseID)
	if err == nil && req.GetVolumeCapability() != nil {
		err = checkCapability(req.GetVolumeCapability())
	}
	if err != nil {
		return nil, toStatus(err)
	}
	size := store.SizeRange{Required: req.GetCapacityRange().GetRequiredBytes(), Limit: req.GetCapacityRange().GetLimitBytes()}
	capacity, err := c.volumes.Expand(ctx, id, size, secretOptions(req.GetSecrets()))
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: capacity}, nil
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
