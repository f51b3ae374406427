package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// published finds the NFS mount at a target in the mount table. It does not access the
// target itself.
func (p *publisher) published(ctx context.Context, target string) (nfsmount.Entry, error) {
	dir, err := canonical(target)
	if errors.Is(err, fs.ErrNotExist) || !filepath.IsAbs(target) {
		return nfsmount.Entry{}, fmt.Errorf("%w: nothing is published at %s", volume.ErrNotFound, target)
	}
	if err != nil {
		return nfsmount.Entry{}, err
	}
	top, mounted, err := p.mounter.MountAt(ctx, dir)
	if err != nil {
		return nfsmount.Entry{}, err
	}
	if !mounted || !top.IsNFS() {
		return nfsmount.Entry{}, fmt.Errorf("%w: nothing is published at %s", volume.ErrNotFound, target)
	}
	return top, nil
}
