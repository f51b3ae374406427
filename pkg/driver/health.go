package driver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// NodeGetVolumeHealth asks the server about a published volume, and reports why the
// last publish failed for one that is not (CSI spec, NodeGetVolumeHealth).
func (n *node) NodeGetVolumeHealth(ctx context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	id, target := req.GetVolumeId(), req.GetVolumePublishPath()
	if id == "" {
		return nil, toStatus(errNoVolumeID)
	}
	if target != "" {
		if err := checkTarget(id, target); err != nil {
			return nil, toStatus(err)
		}
		target = filepath.Clean(target)
	}
	entry, err := n.find(ctx, id, target)
	if errors.Is(err, volume.ErrNotFound) {
		if failure := n.failures.of(id, target); failure != nil {
			return volumeHealth(id, failure), nil
		}
	}
	if err != nil {
		return nil, toStatus(err)
	}
	if _, err = n.mounter.Usage(ctx, entry); err != nil && reasonOf(err) == "" {
		return nil, toStatus(err)
	}
	return volumeHealth(id, err), nil
}

func volumeHealth(id string, err error) *csi.NodeGetVolumeHealthResponse {
	health := &csi.VolumeHealth{VolumeId: id}
	if err != nil {
		health.HealthStatuses = []*csi.VolumeHealth_VolumeHealthEntry{{
			Status: csi.VolumeHealthErrorType_INACCESSIBLE, Reason: reasonOf(err), Message: err.Error(),
		}}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}
}

// find is the mount of a volume: at the target or, without one, any with the source
// that the ID names.
func (n *node) find(ctx context.Context, id, target string) (nfsmount.Entry, error) {
	if target != "" {
		return n.publisher.published(ctx, target)
	}
	parsed, err := volume.ParseID(id)
	if err != nil {
		return nfsmount.Entry{}, fmt.Errorf("%w: no publish path, and the ID names no directory: %w", volume.ErrNotFound, err)
	}
	table, err := n.mounter.Mounts(ctx)
	if err != nil {
		return nfsmount.Entry{}, err
	}
	source := parsed.Export.Source(parsed.SubDir)
	i := slices.IndexFunc(table, func(e nfsmount.Entry) bool { return e.IsNFS() && e.Root == "/" && e.Source == source })
	if i < 0 {
		return nfsmount.Entry{}, fmt.Errorf("%w: %s is not published on this node", volume.ErrNotFound, source)
	}
	return table[i], nil
}

// NodeGetStorageHealth asks every server with a mount on this node, in parallel.
func (n *node) NodeGetStorageHealth(ctx context.Context, _ *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	table, err := n.mounter.Mounts(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	one := map[string]nfsmount.Entry{}
	for _, e := range table {
		if e.IsNFS() {
			one[e.Server] = e
		}
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		dead []string
	)
	for _, e := range one {
		wg.Go(func() {
			if _, err := n.mounter.Usage(ctx, e); errors.Is(err, volume.ErrUnreachable) {
				mu.Lock()
				defer mu.Unlock()
				dead = append(dead, err.Error())
			}
		})
	}
	wg.Wait()
	resp := &csi.NodeGetStorageHealthResponse{}
	if len(dead) > 0 {
		slices.Sort(dead)
		// The spec allows only one message per status and reason.
		resp.BackendHealth = []*csi.NodeGetStorageHealthResponse_StorageBackendHealth{{
			Status: csi.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: reasonUnreachable, Message: strings.Join(dead, "; "),
		}}
	}
	return resp, nil
}
