package capacity

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// segmentLister returns a function that lists the segments to publish.
func (p *Publisher) segmentLister() func() ([]plan.Segment, error) {
	switch {
	case !p.config.Topology:
		return func() ([]plan.Segment, error) { return []plan.Segment{{}}, nil }
	case !p.config.Node.IsZero():
		return func() ([]plan.Segment, error) { return []plan.Segment{p.config.Node.Segment}, nil }
	}
	nodes := p.factory.Core().V1().Nodes().Lister()
	csiNodes := p.factory.Storage().V1().CSINodes().Lister()
	return func() ([]plan.Segment, error) {
		all, err := nodes.List(labels.Everything())
		if err != nil {
			return nil, err
		}
		return plan.NodeSegments(p.config.DriverName, all, csiNodes.Get), nil
	}
}

// watch signals every change that can affect the state.
func (p *Publisher) watch() error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.signalChange() },
		UpdateFunc: func(_, _ any) { p.signalChange() },
		DeleteFunc: func(any) { p.signalChange() },
	}
	watched := []cache.SharedIndexInformer{
		p.factory.Storage().V1().StorageClasses().Informer(),
		p.own.Storage().V1().CSIStorageCapacities().Informer(),
	}
	if p.config.Topology && p.config.Node.IsZero() {
		watched = append(watched, p.factory.Core().V1().Nodes().Informer(), p.factory.Storage().V1().CSINodes().Informer())
	}
	for _, informer := range watched {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	return nil
}

func (p *Publisher) signalChange() {
	select {
	case p.changed <- struct{}{}:
	default: // signalled already
	}
}

// trim keeps the labels of nodes, which are the only large objects here; images and
// conditions are most of a node.
func trim(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		node.Annotations, node.ManagedFields = nil, nil
		node.Spec, node.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
	}
	return obj, nil
}
