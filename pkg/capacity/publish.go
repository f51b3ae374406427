package capacity

import (
	"context"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// obsoletePrefix marks the queue's keys of objects that are to go. No target's
// key begins with a slash.
const obsoletePrefix = "//"

func obsoleteKey(object *storagev1.CSIStorageCapacity) string { return obsoletePrefix + object.Name }

func obsoleteName(key string) (string, bool) { return strings.CutPrefix(key, obsoletePrefix) }

// publish asks the driver about one target and writes what has changed.
func (p *Publisher) publish(ctx context.Context, key string) error {
	p.mu.Lock()
	t, wanted := p.targets[key]
	p.mu.Unlock()
	if !wanted {
		return nil
	}
	class, err := p.classes.Get(t.class)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := p.ask(ctx, t, class)
	if err != nil {
		return err
	}
	_, own, _, err := p.look()
	if err != nil {
		return err
	}
	if object := own[key]; object != nil {
		return p.update(ctx, object, f)
	}
	return p.create(ctx, t, f)
}

func (p *Publisher) ask(ctx context.Context, t target, class *storagev1.StorageClass) (figures, error) {
	parsed, err := plan.ParseClass(class.Parameters)
	if err != nil {
		return figures{}, fmt.Errorf("class %s: %w", class.Name, err)
	}
	request := &csi.GetCapacityRequest{Parameters: parsed.Parameters}
	if len(t.segment) > 0 {
		request.AccessibleTopology = &csi.Topology{Segments: t.segment}
	}
	response, err := p.config.Driver.GetCapacity(ctx, request)
	if err != nil {
		return figures{}, fmt.Errorf("capacity of class %s in %q: %w", t.class, t.segment, err)
	}
	f := figures{
		capacity:   resource.NewQuantity(response.GetAvailableCapacity(), resource.BinarySI),
		ownerships: p.config.Owners,
	}
	if largest := response.GetMaximumVolumeSize(); largest != nil {
		f.largest = resource.NewQuantity(largest.GetValue(), resource.BinarySI)
	}
	return f, nil
}

func (p *Publisher) create(ctx context.Context, t target, f figures) error {
	object := p.newObject(t, f)
	objects := p.config.Client.StorageV1().CSIStorageCapacities(p.config.Namespace)
	_, err := objects.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// The cache has not seen it yet; what it says is as fresh as this is.
		return nil
	}
	if err != nil {
		return fmt.Errorf("create CSIStorageCapacity of class %s in %q: %w", t.class, t.segment, err)
	}
	klog.FromContext(ctx).V(2).Info("Published", logkeys.CSIStorageCapacity, object.Name, logkeys.StorageClass, t.class, logkeys.Segment, t.segment.String(), logkeys.Capacity, f.capacity.String())
	return nil
}

func (p *Publisher) update(ctx context.Context, object *storagev1.CSIStorageCapacity, f figures) error {
	if upToDate(object, f) {
		return nil
	}
	changed := object.DeepCopy()
	changed.Capacity, changed.MaximumVolumeSize, changed.OwnerReferences = f.capacity, f.largest, f.ownerships
	objects := p.config.Client.StorageV1().CSIStorageCapacities(p.config.Namespace)
	if _, err := objects.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update CSIStorageCapacity %s: %w", object.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Published", logkeys.CSIStorageCapacity, object.Name, logkeys.StorageClass, object.StorageClassName, logkeys.Capacity, f.capacity.String())
	return nil
}

// retract deletes an object unless it has become wanted again.
func (p *Publisher) retract(ctx context.Context, name string) error {
	_, _, obsolete, err := p.look()
	if err != nil {
		return err
	}
	for _, object := range obsolete {
		if object.Name != name {
			continue
		}
		objects := p.config.Client.StorageV1().CSIStorageCapacities(p.config.Namespace)
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}}
		if err := objects.Delete(ctx, name, options); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete CSIStorageCapacity %s: %w", name, err)
		}
		klog.FromContext(ctx).V(2).Info("Retracted", logkeys.CSIStorageCapacity, name)
	}
	return nil
}
