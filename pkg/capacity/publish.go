package capacity

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedstoragev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// obsoletePrefix marks the queue's keys of obsolete objects. No target's key begins
// with a slash.
const obsoletePrefix = "//"

// publish gets the capacity of one target and writes its object if it has changed.
func (p *Publisher) publish(ctx context.Context, key string) error {
	t, wanted := p.target(key)
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
	object, err := p.measure(ctx, t, class)
	if err != nil {
		return err
	}
	if published := p.published(key); published != nil {
		return p.update(ctx, published, object)
	}
	return p.create(ctx, t, object)
}

// measure returns the object to publish.
func (p *Publisher) measure(ctx context.Context, t target, class *storagev1.StorageClass) (*storagev1.CSIStorageCapacity, error) {
	parsed, err := plan.ParseClass(class.Parameters)
	if err != nil {
		return nil, fmt.Errorf("class %s: %w", class.Name, err)
	}
	request := &csi.GetCapacityRequest{Parameters: parsed.Common()}
	if len(t.segment) > 0 {
		request.AccessibleTopology = &csi.Topology{Segments: t.segment}
	}
	response, err := p.config.Driver.GetCapacity(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("get capacity of class %s in %q: %w", t.class, t.segment, err)
	}
	return p.newObject(t, response), nil
}

func (p *Publisher) create(ctx context.Context, t target, object *storagev1.CSIStorageCapacity) error {
	_, err := p.client().Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// It is not in the cache yet, and as fresh as this one.
		return nil
	}
	if err != nil {
		return fmt.Errorf("create CSIStorageCapacity of class %s in %q: %w", t.class, t.segment, err)
	}
	klog.FromContext(ctx).V(2).Info("Created CSIStorageCapacity", logkeys.CSIStorageCapacity, object.Name, logkeys.StorageClass, t.class,
		logkeys.Segment, t.segment.String(), logkeys.Capacity, object.Capacity.String())
	return nil
}

func (p *Publisher) update(ctx context.Context, published, object *storagev1.CSIStorageCapacity) error {
	if sameContent(published, object) {
		return nil
	}
	changed := published.DeepCopy()
	changed.Capacity, changed.MaximumVolumeSize, changed.OwnerReferences = object.Capacity, object.MaximumVolumeSize, object.OwnerReferences
	if _, err := p.client().Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update CSIStorageCapacity %s: %w", changed.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Updated CSIStorageCapacity", logkeys.CSIStorageCapacity, changed.Name,
		logkeys.StorageClass, changed.StorageClassName, logkeys.Capacity, changed.Capacity.String())
	return nil
}

// deleteObsolete deletes an object that is still obsolete.
func (p *Publisher) deleteObsolete(ctx context.Context, name string) error {
	object, err := p.objects.Get(name)
	if apierrors.IsNotFound(err) || err == nil && !p.obsolete(object) {
		return nil
	}
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}}
	if err := p.client().Delete(ctx, name, options); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete CSIStorageCapacity %s: %w", name, err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted obsolete CSIStorageCapacity", logkeys.CSIStorageCapacity, name)
	return nil
}

func (p *Publisher) client() typedstoragev1.CSIStorageCapacityInterface {
	return p.config.Client.StorageV1().CSIStorageCapacities(p.config.Namespace)
}
