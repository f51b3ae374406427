package capacity

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// whereNodesAre returns what lists the segments to ask about.
func (p *Publisher) whereNodesAre() func() ([]plan.Segment, error) {
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
		var segments []plan.Segment
		for _, node := range all {
			registered, err := csiNodes.Get(node.Name)
			if err != nil {
				continue // not registered yet, or gone
			}
			if segment, err := plan.NodeSegment(p.config.DriverName, registered, node.Labels); err == nil && segment != nil {
				segments = append(segments, segment)
			}
		}
		return segments, nil
	}
}

// watch notes every change that can change what is to be published.
func (p *Publisher) watch() error {
	note := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.note() },
		UpdateFunc: func(_, _ any) { p.note() },
		DeleteFunc: func(any) { p.note() },
	}
	watched := []cache.SharedIndexInformer{
		p.factory.Storage().V1().StorageClasses().Informer(),
		p.own.Storage().V1().CSIStorageCapacities().Informer(),
	}
	if p.config.Topology && p.config.Node.IsZero() {
		watched = append(watched, p.factory.Core().V1().Nodes().Informer(), p.factory.Storage().V1().CSINodes().Informer())
	}
	for _, informer := range watched {
		if _, err := informer.AddEventHandler(note); err != nil {
			return err
		}
	}
	return nil
}

func (p *Publisher) note() {
	select {
	case p.changed <- struct{}{}:
	default: // is noted already
	}
}

// trim keeps the labels of nodes: of the objects here only they are large, and
// images and conditions are most of them.
func trim(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		node.Annotations, node.ManagedFields = nil, nil
		node.Spec, node.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
	}
	return obj, nil
}
