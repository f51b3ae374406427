package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func (c *controller) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	if err := checkEntries(req); err != nil {
		return nil, toStatus(err)
	}
	page, err := c.volumes.List(ctx, int(req.GetMaxEntries()), req.GetStartingToken())
	if err != nil {
		return nil, toStatus(err)
	}
	resp := &csi.ListVolumesResponse{NextToken: page.Next}
	for _, v := range page.Volumes {
		resp.Entries = append(resp.Entries, &csi.ListVolumesResponse_Entry{Volume: volumeOf(v, nil)})
	}
	return resp, nil
}

func (c *controller) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	id, err := parseID("volume", req.GetVolumeId(), volume.ParseID)
	if err != nil {
		return nil, toStatus(err)
	}
	found, err := c.volumes.Get(ctx, id, nil)
	if err != nil {
		return nil, toStatus(err)
	}
	v := volumeOf(found, nil)
	v.VolumeId = req.GetVolumeId() // in the form that the caller uses
	return &csi.ControllerGetVolumeResponse{Volume: v, Status: &csi.ControllerGetVolumeResponse_VolumeStatus{}}, nil
}
