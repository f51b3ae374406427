package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// minVolumeSize is the least a volume can be asked for to have.
const minVolumeSize = 1

// GetCapacity answers with what is free on the export that the parameters name.
// Without parameters no volume can be made, so there is no room for any.
func (c *controller) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	var options []string
	if caps := req.GetVolumeCapabilities(); len(caps) != 0 {
		if err := checkCapabilities(caps); err != nil {
			return nil, toStatus(err)
		}
		options = mountOptions(caps[0])
	}
	if len(req.GetParameters()) == 0 {
		return &csi.GetCapacityResponse{}, nil
	}
	params, err := volume.ParseParams(req.GetParameters())
	if err != nil {
		return nil, toStatus(err)
	}
	free, err := c.volumes.Capacity(ctx, params.Export, options)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.GetCapacityResponse{
		AvailableCapacity: free,
		// One volume may fill the export.
		MaximumVolumeSize: wrapperspb.Int64(free),
		MinimumVolumeSize: wrapperspb.Int64(minVolumeSize),
	}, nil
}
