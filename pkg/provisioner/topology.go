package provisioner

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// errNodeGone is wrapped when the node that the scheduler chose does not exist.
var errNodeGone = errors.New("the selected node is gone")

// Topology says how to place the volumes of a driver that has topology.
type Topology struct {
	// Enabled places volumes; without it a driver's topology is ignored.
	Enabled bool
	// Strict and Immediate are as in plan.Placement.
	Strict, Immediate bool
}

// places is where the nodes are, as they and the driver's node plugins say.
type places struct {
	nodes    corelisters.NodeLister
	csiNodes storagelisters.CSINodeLister
	synced   []cache.InformerSynced
}

func newPlaces(factory informers.SharedInformerFactory) *places {
	nodes, csiNodes := factory.Core().V1().Nodes(), factory.Storage().V1().CSINodes()
	return &places{
		nodes:    nodes.Lister(),
		csiNodes: csiNodes.Lister(),
		synced:   []cache.InformerSynced{nodes.Informer().HasSynced, csiNodes.Informer().HasSynced},
	}
}

// place asks in the creation for what its claim needs of the driver's topology.
func (p *Provisioner) place(ctx context.Context, creation *plan.Creation, options controller.ProvisionOptions) error {
	if node := p.config.Node; !node.IsZero() {
		return creation.Place(node.Placement(options.PVC.Name, options.StorageClass.AllowedTopologies), true)
	}
	if p.places == nil {
		return nil
	}
	if !cache.WaitForCacheSync(ctx.Done(), p.places.synced...) {
		return fmt.Errorf("find out where the nodes are: %w", context.Cause(ctx))
	}
	driver := p.config.Driver.Capabilities().DriverName
	placement := plan.Placement{
		Strict:    p.config.Topology.Strict,
		Immediate: p.config.Topology.Immediate,
		ClaimName: options.PVC.Name,
		Allowed:   options.StorageClass.AllowedTopologies,
	}
	var err error
	if options.SelectedNodeName != "" {
		if placement.Selected, err = p.places.of(driver, options.SelectedNodeName); err != nil {
			return err
		}
	}
	if placement.Cluster, err = p.places.all(driver); err != nil {
		return err
	}
	return creation.Place(placement, options.SelectedNodeName != "")
}

// of is where a node is. A driver that has topology says so of each node that it
// runs on; where it does not, it has not been registered there yet.
func (l *places) of(driver, name string) (plan.Segment, error) {
	node, err := l.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s", errNodeGone, name)
	}
	if err != nil {
		return nil, err
	}
	registered, err := l.csiNodes.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	segment, err := plan.NodeSegment(driver, registered, node.Labels)
	if err == nil && segment == nil {
		err = fmt.Errorf("%w: CSI driver %s has not said where node %s is; is its node plugin running there?", plan.ErrClaim, driver, name)
	}
	return segment, err
}

// all leaves out nodes that do not say where they are: no volume can be placed
// there, but on the others.
func (l *places) all(driver string) ([]plan.Segment, error) {
	nodes, err := l.nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var segments []plan.Segment
	for _, node := range nodes {
		registered, err := l.csiNodes.Get(node.Name)
		if err != nil {
			continue
		}
		if segment, err := plan.NodeSegment(driver, registered, node.Labels); err == nil && segment != nil {
			segments = append(segments, segment)
		}
	}
	return segments, nil
}

// unfinished are the volumes that the driver may still be making, by name.
type unfinished struct{ names sync.Map }

func (u *unfinished) note(name string, state controller.ProvisioningState) {
	switch state {
	case controller.ProvisioningInBackground:
		u.names.Store(name, nil)
	case controller.ProvisioningNoChange:
	default:
		u.names.Delete(name)
	}
}

// reschedule has the scheduler choose again for a claim whose node is gone, but
// not while the driver may be making its volume: the library would then forget it.
func (u *unfinished) reschedule(name string, err error) controller.ProvisioningState {
	if _, making := u.names.Load(name); making || !errors.Is(err, errNodeGone) {
		return controller.ProvisioningNoChange
	}
	return controller.ProvisioningReschedule
}
