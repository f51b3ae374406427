package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

type controller struct {
	csi.UnimplementedControllerServer
	volumes *store.Store
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

func (c *controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	create, err := createRequest(req)
	if err != nil {
		return nil, toStatus(err)
	}
	made, err := c.volumes.Create(ctx, create)
	if err != nil {
		return nil, toStatus(err)
	}
	v := volumeOf(made, req.GetParameters())
	v.ContentSource = req.GetVolumeContentSource()
	return &csi.CreateVolumeResponse{Volume: v}, nil
}

// volumeOf returns a volume of a class with these parameters, nil if they are not known.
func volumeOf(v store.Created, class map[string]string) *csi.Volume {
	attributes := volume.Attributes{Export: v.ID.Export, SubDir: v.ID.SubDir}
	return &csi.Volume{
		VolumeId:      v.ID.String(),
		CapacityBytes: v.Capacity,
		VolumeContext: attributes.Context(class),
	}
}

// createRequest validates all of a CreateVolumeRequest.
func createRequest(req *csi.CreateVolumeRequest) (store.CreateRequest, error) {
	if req.GetName() == "" {
		return store.CreateRequest{}, fmt.Errorf("%w: no volume name", volume.ErrInvalid)
	}
	if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
		return store.CreateRequest{}, err
	}
	params, err := volume.ParseParams(req.GetParameters())
	if err != nil {
		return store.CreateRequest{}, err
	}
	mutable, err := volume.ParseMutable(req.GetMutableParameters())
	if err != nil {
		return store.CreateRequest{}, err
	}
	source, err := contentSource(req.GetVolumeContentSource())
	if err != nil {
		return store.CreateRequest{}, err
	}
	return store.CreateRequest{
		Name:    req.GetName(),
		Params:  params,
		Mutable: mutable,
		Source:  source,
		// All capabilities have the mount options of the class.
		MountOptions: mountOptions(req.GetVolumeCapabilities()[0]),
		Size: store.SizeRange{
			Required: req.GetCapacityRange().GetRequiredBytes(),
			Limit:    req.GetCapacityRange().GetLimitBytes(),
		},
	}, nil
}

// contentSource parses the source of a new volume; nil for none. An ID of another form
// names a source that does not exist.
func contentSource(src *csi.VolumeContentSource) (*store.Source, error) {
	switch {
	case src == nil:
		return nil, nil //nolint:nilnil // no source is no error
	case src.GetVolume() != nil:
		id, err := volume.ParseID(src.GetVolume().GetVolumeId())
		if err != nil {
			return nil, fmt.Errorf("content source: %w", err)
		}
		return &store.Source{Volume: &id}, nil
	case src.GetSnapshot() != nil:
		id, err := volume.ParseSnapshotID(src.GetSnapshot().GetSnapshotId())
		if err != nil {
			return nil, fmt.Errorf("content source: %w", err)
		}
		return &store.Source{Snapshot: &id}, nil
	}
	return nil, fmt.Errorf("%w: content source of an unknown kind", volume.ErrInvalid)
}

func (c *controller) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	id, err := parseID("volume", req.GetVolumeId(), volume.ParseID)
	if errors.Is(err, volume.ErrForeignID) {
		// CSI spec, DeleteVolume: no such volume is success. It is logged because the
		// caller believes that this driver made it.
		klog.FromContext(ctx).Error(err, "Ignoring the deletion of a volume that is not of this driver", logkeys.VolumeID, req.GetVolumeId())
		return &csi.DeleteVolumeResponse{}, nil
	}
	if err != nil {
		return nil, toStatus(err)
	}
	if err := c.volumes.Delete(ctx, id, secretOptions(req.GetSecrets())); err != nil {
		return nil, toStatus(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, toStatus(fmt.Errorf("%w: no volume capabilities", volume.ErrInvalid))
	}
	id, err := parseID("volume", req.GetVolumeId(), volume.ParseID)
	if err != nil {
		return nil, toStatus(err)
	}
	if err := c.volumes.Exists(ctx, id, secretOptions(req.GetSecrets())); err != nil {
		return nil, toStatus(err)
	}
	resp := &csi.ValidateVolumeCapabilitiesResponse{}
	if mismatch := validates(id, req); mismatch != nil {
		resp.Message = mismatch.Error() // and no error of the call
	} else {
		resp.Confirmed = &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext:      req.GetVolumeContext(),
			VolumeCapabilities: req.GetVolumeCapabilities(),
			Parameters:         req.GetParameters(),
		}
	}
	return resp, nil
}

// validates reports how the request differs from the volume.
func validates(id volume.ID, req *csi.ValidateVolumeCapabilitiesRequest) error {
	if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
		return err
	}
	if len(req.GetParameters()) != 0 {
		params, err := volume.ParseParams(req.GetParameters())
		if err != nil {
			return err
		}
		if params.Export != id.Export {
			return fmt.Errorf("%w: the volume is on %s, the parameters say %s", volume.ErrIncompatible, id.Export, params.Export)
		}
	}
	if len(req.GetVolumeContext()) == 0 {
		return nil
	}
	a, err := volume.ParseAttributes(req.GetVolumeContext())
	if err == nil && (a.Export != id.Export || a.SubDir != id.SubDir) {
		err = fmt.Errorf("%w: the volume is %s, the context says %s",
			volume.ErrIncompatible, id.Export.Source(id.SubDir), a.Export.Source(a.SubDir))
	}
	return err
}
