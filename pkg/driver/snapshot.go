package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func (c *controller) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	create, err := snapshotRequest(req)
	if err != nil {
		return nil, toStatus(err)
	}
	made, err := c.volumes.CreateSnapshot(ctx, create)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshotMessage(made)}, nil
}

// snapshotRequest validates all of a CreateSnapshotRequest.
func snapshotRequest(req *csi.CreateSnapshotRequest) (store.SnapshotRequest, error) {
	if req.GetName() == "" {
		return store.SnapshotRequest{}, fmt.Errorf("%w: no snapshot name", volume.ErrInvalid)
	}
	source, err := parseID("source volume", req.GetSourceVolumeId(), volume.ParseID)
	if err != nil {
		return store.SnapshotRequest{}, err
	}
	params, err := volume.ParseSnapshotParams(req.GetParameters())
	if err != nil {
		return store.SnapshotRequest{}, err
	}
	return store.SnapshotRequest{
		Name: req.GetName(), Source: source, Export: params.Export, MountOptions: snapshotOptions(params, req.GetSecrets()),
	}, nil
}

// snapshotOptions are the mount options of the class, or else of the secret.
func snapshotOptions(params volume.SnapshotParams, secrets map[string]string) []string {
	if params.MountOptions != "" {
		return []string{params.MountOptions}
	}
	return secretOptions(secrets)
}

// snapshotMessage always describes a snapshot that is ready: there are no others. Its
// size is the minimum for a volume made from it (CSI spec, Snapshot). That is the
// capacity of the source and not its content: a claim like the source's must suffice.
func snapshotMessage(s store.Snapshot) *csi.Snapshot {
	message := &csi.Snapshot{
		SnapshotId:     s.ID.String(),
		SourceVolumeId: s.SourceID,
		SizeBytes:      s.Capacity,
		CreationTime:   timestamppb.New(s.Created),
		ReadyToUse:     true,
	}
	if group := s.ID.GroupID(); group != nil {
		message.GroupSnapshotId = group.String()
	}
	return message
}

func (c *controller) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	id, err := parseID("snapshot", req.GetSnapshotId(), volume.ParseSnapshotID)
	if errors.Is(err, volume.ErrForeignID) {
		// CSI spec, DeleteSnapshot: no such snapshot is success.
		klog.FromContext(ctx).Error(err, "Ignoring the deletion of a snapshot that is not of this driver", logkeys.SnapshotID, req.GetSnapshotId())
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if err != nil {
		return nil, toStatus(err)
	}
	if err := c.volumes.DeleteSnapshot(ctx, id, secretOptions(req.GetSecrets())); err != nil {
		return nil, toStatus(err)
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

func (c *controller) GetSnapshot(ctx context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	id, err := parseID("snapshot", req.GetSnapshotId(), volume.ParseSnapshotID)
	if err != nil {
		return nil, toStatus(err)
	}
	found, err := c.volumes.GetSnapshot(ctx, id, secretOptions(req.GetSecrets()))
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.GetSnapshotResponse{Snapshot: snapshotMessage(found)}, nil
}

func (c *controller) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if err := checkEntries(req); err != nil {
		return nil, toStatus(err)
	}
	if req.GetSnapshotId() != "" {
		return c.listOne(ctx, req)
	}
	q := inventory.SnapshotQuery{
		Max: int(req.GetMaxEntries()), Token: req.GetStartingToken(), MountOptions: secretOptions(req.GetSecrets()),
	}
	if req.GetSourceVolumeId() != "" {
		source, err := volume.ParseID(req.GetSourceVolumeId())
		if err != nil {
			// CSI spec, ListSnapshots: no such volume is an empty list.
			return &csi.ListSnapshotsResponse{}, nil //nolint:nilerr // see above
		}
		q.Source = &source
	}
	page, next, err := c.volumes.ListSnapshots(ctx, q)
	if err != nil {
		return nil, toStatus(err)
	}
	resp := &csi.ListSnapshotsResponse{NextToken: next}
	for _, s := range page {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotMessage(s)})
	}
	return resp, nil
}

// listOne lists the snapshot with an ID: no such snapshot is an empty list.
func (c *controller) listOne(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	id, err := volume.ParseSnapshotID(req.GetSnapshotId())
	if err != nil {
		return &csi.ListSnapshotsResponse{}, nil //nolint:nilerr // an invalid ID is no snapshot
	}
	found, err := c.volumes.GetSnapshot(ctx, id, secretOptions(req.GetSecrets()))
	if errors.Is(err, volume.ErrSnapshotNotFound) {
		return &csi.ListSnapshotsResponse{}, nil
	}
	if err != nil {
		return nil, toStatus(err)
	}
	if req.GetSourceVolumeId() != "" && req.GetSourceVolumeId() != found.SourceID {
		return &csi.ListSnapshotsResponse{}, nil
	}
	return &csi.ListSnapshotsResponse{Entries: []*csi.ListSnapshotsResponse_Entry{{Snapshot: snapshotMessage(found)}}}, nil
}
