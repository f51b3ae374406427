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
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

type groupController struct {
	csi.UnimplementedGroupControllerServer
	volumes *store.Store
}

func (g *groupController) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

func (g *groupController) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	create, err := groupRequest(req)
	if err != nil {
		return nil, toStatus(err)
	}
	made, err := g.volumes.CreateGroup(ctx, create)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: groupMessage(made)}, nil
}

// groupRequest validates all of a CreateVolumeGroupSnapshotRequest.
func groupRequest(req *csi.CreateVolumeGroupSnapshotRequest) (store.GroupRequest, error) {
	switch {
	case req.GetName() == "":
		return store.GroupRequest{}, fmt.Errorf("%w: no group snapshot name", volume.ErrInvalid)
	case len(req.GetSourceVolumeIds()) == 0:
		return store.GroupRequest{}, fmt.Errorf("%w: no source volume IDs", volume.ErrInvalid)
	}
	params, err := volume.ParseGroupParams(req.GetParameters())
	if err != nil {
		return store.GroupRequest{}, err
	}
	create := store.GroupRequest{
		Name: req.GetName(), Export: params.Export, AllowWrites: params.AllowWrites,
		MountOptions: snapshotOptions(params.SnapshotParams, req.GetSecrets()),
	}
	for _, text := range req.GetSourceVolumeIds() {
		id, err := volume.ParseID(text)
		if err != nil {
			return store.GroupRequest{}, err
		}
		create.Sources = append(create.Sources, store.Handle{ID: id, Text: text})
	}
	return create, nil
}

// groupMessage always describes a group that is ready: there are no others.
func groupMessage(g store.Group) *csi.VolumeGroupSnapshot {
	message := &csi.VolumeGroupSnapshot{
		GroupSnapshotId: g.ID.String(),
		CreationTime:    timestamppb.New(g.Created),
		ReadyToUse:      true,
	}
	for _, s := range g.Members {
		message.Snapshots = append(message.Snapshots, snapshotMessage(s))
	}
	return message
}

func (g *groupController) DeleteVolumeGroupSnapshot(ctx context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	id, err := parseID("group snapshot", req.GetGroupSnapshotId(), volume.ParseGroupID)
	if errors.Is(err, volume.ErrForeignID) {
		// CSI spec, DeleteVolumeGroupSnapshot: no such group is success.
		klog.FromContext(ctx).Error(err, "Ignoring the deletion of a group snapshot that is not of this driver", logkeys.GroupSnapshotID, req.GetGroupSnapshotId())
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
	}
	if err != nil {
		return nil, toStatus(err)
	}
	if err := g.volumes.DeleteGroup(ctx, id, req.GetSnapshotIds(), secretOptions(req.GetSecrets())); err != nil {
		return nil, toStatus(err)
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

func (g *groupController) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	id, err := parseID("group snapshot", req.GetGroupSnapshotId(), volume.ParseGroupID)
	if err != nil {
		return nil, toStatus(err)
	}
	found, err := g.volumes.GetGroup(ctx, id, req.GetSnapshotIds(), secretOptions(req.GetSecrets()))
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: groupMessage(found)}, nil
}
