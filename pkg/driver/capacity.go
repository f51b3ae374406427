package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// minVolumeSize is the smallest capacity that a volume can have.
const minVolumeSize = 1

// GetCapacity returns the free space on the export in the parameters. Without
// parameters no volume can be created, so the capacity is 0.
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
