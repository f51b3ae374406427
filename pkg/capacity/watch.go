package capacity

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	nodes := p.config.Informers.Core().V1().Nodes().Lister()
	csiNodes := p.config.Informers.Storage().V1().CSINodes().Lister()
	return func() ([]plan.Segment, error) {
		all, err := nodes.List(labels.Everything())
		if err != nil {
			return nil, err
		}
		return plan.NodeSegments(p.config.DriverName, all, csiNodes.Get), nil
	}
}

// watch signals the changes that can affect the targets, and queues the object that was
// added or deleted.
func (p *Publisher) watch() error {
	own := p.own.Storage().V1().CSIStorageCapacities().Informer()
	if err := own.AddIndexers(cache.Indexers{targetIndex: indexTarget}); err != nil {
		return err
	}
	if _, err := own.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: p.objectAdded, DeleteFunc: p.objectDeleted}); err != nil {
		return err
	}
	always := func(_, _ any) bool { return true }
	watched := map[cache.SharedIndexInformer]func(before, after any) bool{
		p.config.Informers.Storage().V1().StorageClasses().Informer(): always,
	}
	if p.config.Topology && p.config.Node.IsZero() {
		watched[p.config.Informers.Core().V1().Nodes().Informer()] = labelsChanged
		watched[p.config.Informers.Storage().V1().CSINodes().Informer()] = p.topologyKeysChanged
	}
	for informer, changed := range watched {
		p.synced = append(p.synced, informer.HasSynced)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { p.signalChange() },
			UpdateFunc: func(before, after any) {
				if changed(before, after) {
					p.signalChange()
				}
			},
			DeleteFunc: func(any) { p.signalChange() },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// labelsChanged is false for the heartbeats of a node.
func labelsChanged(before, after any) bool {
	old, _ := before.(*corev1.Node)
	updated, _ := after.(*corev1.Node)
	return old == nil || updated == nil || !maps.Equal(old.Labels, updated.Labels)
}

// topologyKeysChanged is false where another driver was registered.
func (p *Publisher) topologyKeysChanged(before, after any) bool {
	keys := func(object any) []string {
		node, _ := object.(*storagev1.CSINode)
		if node == nil {
			return nil
		}
		for _, driver := range node.Spec.Drivers {
			if driver.Name == p.config.DriverName {
				return driver.TopologyKeys
			}
		}
		return nil
	}
	return !slices.Equal(keys(before), keys(after))
}

// targetIndex finds the objects of a target by its key.
const targetIndex = "target"

// indexTarget is the cache.IndexFunc of targetIndex.
func indexTarget(object any) ([]string, error) {
	published, _ := object.(*storagev1.CSIStorageCapacity)
	if published == nil {
		return nil, nil
	}
	if t, ok := targetOf(published); ok {
		return []string{t.key()}, nil
	}
	return nil, nil
}

// published returns the object of a target, of duplicates the one that stays, or nil.
func (p *Publisher) published(key string) (first *storagev1.CSIStorageCapacity) {
	objects, err := p.byTarget.ByIndex(targetIndex, key)
	if err != nil {
		return nil // there is no such index
	}
	for _, object := range objects {
		published, _ := object.(*storagev1.CSIStorageCapacity)
		if published != nil && (first == nil || published.Name < first.Name) {
			first = published
		}
	}
	return first
}

// obsolete reports whether an object is to be deleted, as newState finds it.
func (p *Publisher) obsolete(object *storagev1.CSIStorageCapacity) bool {
	p.mu.Lock()
	known := p.desired.byKey != nil
	p.mu.Unlock()
	if !known {
		return false
	}
	t, ok := targetOf(object)
	if _, wanted := p.target(t.key()); !ok || !wanted {
		return true
	}
	first := p.published(t.key())
	return first != nil && first.Name != object.Name
}

func (p *Publisher) objectAdded(object any) {
	if added, ok := object.(*storagev1.CSIStorageCapacity); ok && p.obsolete(added) {
		p.queue.Add(obsoletePrefix + added.Name)
	}
}

func (p *Publisher) objectDeleted(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	deleted, ok := object.(*storagev1.CSIStorageCapacity)
	if !ok {
		return
	}
	t, _ := targetOf(deleted)
	if _, wanted := p.target(t.key()); wanted {
		p.queue.Add(t.key())
	}
}

func (p *Publisher) signalChange() {
	select {
	case p.changed <- struct{}{}:
	default: // signalled already
	}
}
