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
	typedstoragev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// obsoletePrefix marks the queue's keys of obsolete objects. No target's key begins
// with a slash.
const obsoletePrefix = "//"

func obsoleteKey(object *storagev1.CSIStorageCapacity) string { return obsoletePrefix + object.Name }

func obsoleteName(key string) (string, bool) { return strings.CutPrefix(key, obsoletePrefix) }

// publish gets the capacity of one target and writes its object if it has changed.
func (p *Publisher) publish(ctx context.Context, key string) error {
	p.mu.Lock()
	t, wanted := p.desired[key]
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
	c, err := p.getCapacity(ctx, t, class)
	if err != nil {
		return err
	}
	state, err := p.state()
	if err != nil {
		return err
	}
	if object := state.current[key]; object != nil {
		return p.update(ctx, object, c)
	}
	return p.create(ctx, t, c)
}

func (p *Publisher) getCapacity(ctx context.Context, t target, class *storagev1.StorageClass) (content, error) {
	parsed, err := plan.ParseClass(class.Parameters)
	if err != nil {
		return content{}, fmt.Errorf("class %s: %w", class.Name, err)
	}
	request := &csi.GetCapacityRequest{Parameters: parsed.Parameters}
	if len(t.segment) > 0 {
		request.AccessibleTopology = &csi.Topology{Segments: t.segment}
	}
	response, err := p.config.Driver.GetCapacity(ctx, request)
	if err != nil {
		return content{}, fmt.Errorf("get capacity of class %s in %q: %w", t.class, t.segment, err)
	}
	c := content{
		capacity: resource.NewQuantity(response.GetAvailableCapacity(), resource.BinarySI),
		owners:   p.config.Owners,
	}
	if size := response.GetMaximumVolumeSize(); size != nil {
		c.maximumVolumeSize = resource.NewQuantity(size.GetValue(), resource.BinarySI)
	}
	return c, nil
}

func (p *Publisher) create(ctx context.Context, t target, c content) error {
	object := p.newObject(t, c)
	_, err := p.client().Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// It is not in the cache yet, and as fresh as this one.
		return nil
	}
	if err != nil {
		return fmt.Errorf("create CSIStorageCapacity of class %s in %q: %w", t.class, t.segment, err)
	}
	klog.FromContext(ctx).V(2).Info("Created CSIStorageCapacity", logkeys.CSIStorageCapacity, object.Name, logkeys.StorageClass, t.class,
		logkeys.Segment, t.segment.String(), logkeys.Capacity, c.capacity.String())
	return nil
}

func (p *Publisher) update(ctx context.Context, object *storagev1.CSIStorageCapacity, c content) error {
	if c.matches(object) {
		return nil
	}
	changed := object.DeepCopy()
	changed.Capacity, changed.MaximumVolumeSize, changed.OwnerReferences = c.capacity, c.maximumVolumeSize, c.owners
	if _, err := p.client().Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update CSIStorageCapacity %s: %w", object.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Updated CSIStorageCapacity", logkeys.CSIStorageCapacity, object.Name,
		logkeys.StorageClass, object.StorageClassName, logkeys.Capacity, c.capacity.String())
	return nil
}

// deleteObsolete deletes an object that is still obsolete.
func (p *Publisher) deleteObsolete(ctx context.Context, name string) error {
	state, err := p.state()
	if err != nil {
		return err
	}
	for _, object := range state.obsolete {
		if object.Name != name {
			continue
		}
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}}
		if err := p.client().Delete(ctx, name, options); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete CSIStorageCapacity %s: %w", name, err)
		}
		klog.FromContext(ctx).V(2).Info("Deleted obsolete CSIStorageCapacity", logkeys.CSIStorageCapacity, name)
	}
	return nil
}

func (p *Publisher) client() typedstoragev1.CSIStorageCapacityInterface {
	return p.config.Client.StorageV1().CSIStorageCapacities(p.config.Namespace)
}
