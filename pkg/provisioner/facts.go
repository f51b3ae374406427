package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

const probeInterval = time.Second

var errNotReady = errors.New("driver says it is not ready")

// Facts are what a driver says of itself.
type Facts struct {
	// Name is the driver's, as in a StorageClass's provisioner.
	Name string
	// Topology is of a driver whose volumes cannot be reached from every node.
	Topology bool
	// Attaches is of a driver that attaches volumes to nodes before they are used.
	Attaches bool
	// Capacity is of a driver that can tell how much room it has.
	Capacity bool
	// SingleNodeMultiWriter tells ReadWriteOnce from ReadWriteOncePod.
	SingleNodeMultiWriter bool
	// Snapshots, Clones and Modify are the capabilities CREATE_DELETE_SNAPSHOT,
	// CLONE_VOLUME and MODIFY_VOLUME.
	Snapshots, Clones, Modify bool
	// Place is where in its topology the driver's own node is; nil unless
	// DriverConfig.OwnNode asked for it.
	Place *csi.Topology
}

// readFacts asks until the driver answers; only an answer that waiting will not
// change is an error.
func readFacts(ctx context.Context, conn *grpc.ClientConn, config DriverConfig) (*Facts, error) {
	logger := klog.FromContext(ctx)
	reported := ""
	for {
		facts, err := askFacts(ctx, conn, config)
		if err == nil {
			return facts, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, errNotReady) && !plan.WorthWaiting(err) {
			return nil, err
		}
		if text := err.Error(); text != reported {
			logger.Info("Waiting for the CSI driver", "reason", text)
			reported = text
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(probeInterval):
		}
	}
}

func askFacts(ctx context.Context, conn *grpc.ClientConn, config DriverConfig) (*Facts, error) {
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
		return nil, fmt.Errorf("get its name: %w", err)
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
	if !methods[csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME] {
		return nil, fmt.Errorf("%w: %s does not declare CREATE_DELETE_VOLUME", ErrUnsupportedDriver, name)
	}
	facts := &Facts{
		Name:                  name,
		Topology:              services[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS],
		Attaches:              methods[csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME],
		Capacity:              methods[csi.ControllerServiceCapability_RPC_GET_CAPACITY],
		SingleNodeMultiWriter: methods[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER],
		Snapshots:             methods[csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT],
		Clones:                methods[csi.ControllerServiceCapability_RPC_CLONE_VOLUME],
		Modify:                methods[csi.ControllerServiceCapability_RPC_MODIFY_VOLUME],
	}
	if config.OwnNode {
		facts.Place, err = askPlace(ctx, conn, facts)
	}
	return facts, err
}

// askPlace is for a driver that runs beside this process, on the node that it
// makes volumes on.
func askPlace(ctx context.Context, conn *grpc.ClientConn, facts *Facts) (*csi.Topology, error) {
	if !facts.Topology {
		return nil, fmt.Errorf("%w: %s does not declare VOLUME_ACCESSIBILITY_CONSTRAINTS, so its volumes do not say which node they are on", ErrUnsupportedDriver, facts.Name)
	}
	info, err := csi.NewNodeClient(conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask %s where its node is: %w", facts.Name, err)
	}
	if len(info.GetAccessibleTopology().GetSegments()) == 0 {
		return nil, fmt.Errorf("%w: %s does not say where its node is: NodeGetInfo has no accessible topology", ErrUnsupportedDriver, facts.Name)
	}
	return info.GetAccessibleTopology(), nil
}
