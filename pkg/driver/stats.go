package driver

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// NodeGetVolumeStats reports the usage of the export: NFS has none for a directory,
// unless the server has a quota for it.
func (n *node) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	switch {
	case req.GetVolumeId() == "":
		return nil, toStatus(errNoVolumeID)
	case req.GetVolumePath() == "":
		return nil, toStatus(fmt.Errorf("%w: no volume path", volume.ErrInvalid))
	}
	entry, err := n.publisher.published(ctx, filepath.Clean(req.GetVolumePath()))
	if err != nil {
		return nil, toStatus(err)
	}
	usage, err := n.mounter.Usage(ctx, entry)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		volumeUsage(csi.VolumeUsage_BYTES, usage.Bytes),
		volumeUsage(csi.VolumeUsage_INODES, usage.Inodes),
	}}, nil
}

func volumeUsage(unit csi.VolumeUsage_Unit, a nfsmount.Amount) *csi.VolumeUsage {
	return &csi.VolumeUsage{Unit: unit, Total: a.Total, Used: a.Used, Available: a.Available}
}
