package csiclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

const probeInterval = time.Second

var errNotReady = errors.New("driver is not ready")

// awaitCapabilities retries until the driver answers. It returns only errors that
// waiting cannot resolve.
func awaitCapabilities(ctx context.Context, conn *grpc.ClientConn, config Config) (*plan.Capabilities, error) {
	logger := klog.FromContext(ctx)
	reported := ""
	for {
		capabilities, err := readCapabilities(ctx, conn, config)
		if err == nil {
			return capabilities, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, errNotReady) && !plan.WorthWaiting(err) {
			return nil, err
		}
		if text := err.Error(); text != reported {
			logger.Info("Waiting for the CSI driver", logkeys.Reason, text)
			reported = text
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(probeInterval):
		}
	}
}

func readCapabilities(ctx context.Context, conn *grpc.ClientConn, config Config) (*plan.Capabilities, error) {
	ctx, cancel := context.WithTimeout(ctx, config.Timeout)
	defer cancel()
	ready, err := rpc.Probe(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	if !ready {
		return nil, errNotReady
	}
	name, err := rpc.GetDriverName(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("get driver name: %w", err)
	}
	services, err := rpc.GetPluginCapabilities(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("get capabilities of %s: %w", name, err)
	}
	if !services[csi.PluginCapability_Service_CONTROLLER_SERVICE] {
		return nil, fmt.Errorf("%w: %s has no controller service", ErrUnsupportedDriver, name)
	}
	methods, err := rpc.GetControllerCapabilities(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("get controller capabilities of %s: %w", name, err)
	}
	capabilities := &plan.Capabilities{
		DriverName:            name,
		Volumes:               methods[csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME],
		Topology:              services[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS],
		Attach:                methods[csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME],
		Capacity:              methods[csi.ControllerServiceCapability_RPC_GET_CAPACITY],
		SingleNodeMultiWriter: methods[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER],
		Snapshots:             methods[csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT],
		Clones:                methods[csi.ControllerServiceCapability_RPC_CLONE_VOLUME],
		Modify:                methods[csi.ControllerServiceCapability_RPC_MODIFY_VOLUME],
	}
	if config.NodeTopology {
		capabilities.NodeTopology, err = readNodeTopology(ctx, conn, capabilities)
	}
	return capabilities, err
}

// readNodeTopology is for a driver that runs beside this process, on the node that
// its volumes are on.
func readNodeTopology(ctx context.Context, conn *grpc.ClientConn, capabilities *plan.Capabilities) (*csi.Topology, error) {
	name := capabilities.DriverName
	if !capabilities.Topology {
		return nil, fmt.Errorf("%w: %s does not declare VOLUME_ACCESSIBILITY_CONSTRAINTS, so its volumes cannot be assigned to nodes", ErrUnsupportedDriver, name)
	}
	info, err := csi.NewNodeClient(conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("get node topology of %s: %w", name, err)
	}
	if len(info.GetAccessibleTopology().GetSegments()) == 0 {
		return nil, fmt.Errorf("%w: NodeGetInfo of %s returns no accessible topology", ErrUnsupportedDriver, name)
	}
	return info.GetAccessibleTopology(), nil
}
