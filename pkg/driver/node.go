package driver

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

type node struct {
	csi.UnimplementedNodeServer
	id        string
	mounter   nfsmount.Mounter
	publisher publisher
	failures  failures
	ephemeral *Ephemeral
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.id}, nil
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

func (n *node) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	p, err := n.publicationOf(req)
	if err != nil {
		return nil, toStatus(err)
	}
	err = n.publisher.publish(ctx, p)
	n.failures.note(req.GetVolumeId(), p.mount.Target, err)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publicationOf validates all of a NodePublishVolumeRequest. Only the attributes
// determine what to mount: a static PV may have any ID.
func (n *node) publicationOf(req *csi.NodePublishVolumeRequest) (publication, error) {
	if err := checkTarget(req.GetVolumeId(), req.GetTargetPath()); err != nil {
		return publication{}, err
	}
	capability := req.GetVolumeCapability()
	if err := checkCapability(capability); err != nil {
		return publication{}, err
	}
	a, err := volume.ParseAttributes(req.GetVolumeContext())
	if err != nil {
		return publication{}, err
	}
	list := slices.Concat([]string{a.MountOptions}, mountOptions(capability))
	parse, inline := nfsmount.ParseOptions, isInline(req)
	if inline {
		if err := n.ephemeral.checkInline(a, list); err != nil {
			return publication{}, err
		}
		parse = inlineOptions
	}
	// The access mode does not decide: kubelet passes the first one that the
	// PersistentVolume lists, whatever the pod asks for.
	if req.GetReadonly() {
		list = append(list, "ro")
	}
	options, err := parse(list)
	if err != nil {
		return publication{}, err
	}
	mode := capability.GetAccessMode().GetMode()
	return publication{
		mount: nfsmount.Mount{
			Export: a.Export, SubDir: a.SubDir, Target: filepath.Clean(req.GetTargetPath()), Options: options,
		},
		mode:      modeToSet(a, options, inline),
		exclusive: mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		readers: mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY ||
			mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		inline: inline,
	}, nil
}

// modeToSet is the mountPermissions of a PersistentVolume of csi-driver-nfs, which
// applies them at each publish. They apply only to a volume's own directory, not to an
// export, and not to inline volumes.
func modeToSet(a volume.Attributes, options nfsmount.Options, inline bool) volume.Mode {
	if inline || a.SubDir == "" || options.ReadOnly() {
		return 0
	}
	return a.Mode
}

func (n *node) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := checkTarget(req.GetVolumeId(), req.GetTargetPath()); err != nil {
		return nil, toStatus(err)
	}
	target := filepath.Clean(req.GetTargetPath())
	if err := n.publisher.unpublish(ctx, target); err != nil {
		return nil, toStatus(err)
	}
	n.failures.note(req.GetVolumeId(), target, nil)
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func checkTarget(volumeID, target string) error {
	switch {
	case volumeID == "":
		return errNoVolumeID
	case target == "":
		return fmt.Errorf("%w: no target path", volume.ErrInvalid)
	case !filepath.IsAbs(target) || filepath.Clean(target) == "/":
		return fmt.Errorf("%w: target path %q", volume.ErrInvalid, target)
	}
	return nil
}
