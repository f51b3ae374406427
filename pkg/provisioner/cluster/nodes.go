package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// ErrNodeGone is wrapped when the selected node does not exist, or when no CSI driver
// runs on it.
var ErrNodeGone = errors.New("the selected node is gone")

func (c *Cluster) nodes() coreinformers.NodeInformer { return c.Informers.Core().V1().Nodes() }

func (c *Cluster) csiNodes() storageinformers.CSINodeInformer {
	return c.Informers.Storage().V1().CSINodes()
}

// Segment returns a node's segment of the driver's topology. A driver that has
// topology reports it for each node that it runs on; without it, the driver is not
// registered on the node yet. It needs Config.Topology.
func (c *Cluster) Segment(ctx context.Context, name string) (plan.Segment, error) {
	if err := c.waitForNodes(ctx); err != nil {
		return nil, err
	}
	node, err := c.nodes().Lister().Get(name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s", ErrNodeGone, name)
	}
	if err != nil {
		return nil, err
	}
	csiNode, err := c.csiNodes().Lister().Get(name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s has no CSINode", ErrNodeGone, name)
	}
	if err != nil {
		return nil, err
	}
	driver := c.Driver.DriverName
	segment, err := plan.NodeSegment(driver, csiNode, node.Labels)
	if err == nil && segment == nil {
		err = fmt.Errorf("%w: CSI driver %s has not reported the topology of node %s; is its node plugin running there?", plan.ErrClaim, driver, name)
	}
	return segment, err
}

// Segments returns the segments of all nodes that report one. It needs
// Config.Topology.
func (c *Cluster) Segments(ctx context.Context) ([]plan.Segment, error) {
	if err := c.waitForNodes(ctx); err != nil {
		return nil, err
	}
	all, err := c.nodes().Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	return plan.NodeSegments(c.Driver.DriverName, all, c.csiNodes().Lister().Get), nil
}

func (c *Cluster) waitForNodes(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.nodes().Informer().HasSynced, c.csiNodes().Informer().HasSynced) {
		return fmt.Errorf("look up the topology of nodes: %w", context.Cause(ctx))
	}
	return nil
}
