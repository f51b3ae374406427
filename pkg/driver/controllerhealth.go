package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func (c *controller) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	id, err := parseID("volume", req.GetVolumeId(), volume.ParseID)
	if err != nil {
		return nil, toStatus(err)
	}
	conditions, err := c.volumes.Health(ctx, id, secretOptions(req.GetSecrets()))
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: healthOf(req.GetVolumeId(), conditions)}, nil
}

func (c *controller) ControllerListVolumeHealth(ctx context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	if err := checkEntries(req); err != nil {
		return nil, toStatus(err)
	}
	page, err := c.volumes.ListHealth(ctx, int(req.GetMaxEntries()), req.GetStartingToken())
	if err != nil {
		return nil, toStatus(err)
	}
	resp := &csi.ControllerListVolumeHealthResponse{NextToken: page.Next}
	for _, v := range page.Volumes {
		resp.Entries = append(resp.Entries, healthOf(v.ID, v.Conditions))
	}
	return resp, nil
}

func healthOf(id string, conditions []inventory.Condition) *csi.VolumeHealth {
	types := map[inventory.Severity]csi.VolumeHealthErrorType{
		inventory.Degraded:     csi.VolumeHealthErrorType_DEGRADED,
		inventory.Inaccessible: csi.VolumeHealthErrorType_INACCESSIBLE,
		inventory.DataLoss:     csi.VolumeHealthErrorType_DATA_LOSS,
	}
	health := &csi.VolumeHealth{VolumeId: id}
	for _, c := range conditions {
		health.HealthStatuses = append(health.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: types[c.Severity], Reason: c.Reason, Message: c.Message,
		})
	}
	return health
}
