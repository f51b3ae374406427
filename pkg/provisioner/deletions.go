package provisioner

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// volumeFinalizer is the library's, on volumes that it has to delete.
const volumeFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"

// deletions are the PersistentVolumes that this process has deleted and taken its
// finalizer off. The cache has them a while longer: each change that was made to
// delete one comes back as a reason to look at it, and would have it deleted
// again, at the driver and at the API server.
type deletions struct {
	store cache.Store

	mu   sync.Mutex
	done map[types.UID]struct{}
}

// newDeletions forgets a volume when the informer does.
func newDeletions(volumes cache.SharedIndexInformer) *deletions {
	d := &deletions{store: volumes.GetStore(), done: map[types.UID]struct{}{}}
	_, err := volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: d.gone})
	if err != nil {
		// Only of an informer that is stopped, and then nothing is deleted.
		klog.Background().Error(err, "Cannot watch volumes go")
	}
	return d
}

// patched is told what became of a volume that was patched.
func (d *deletions) patched(volume *corev1.PersistentVolume) {
	if volume.UID == "" || volume.DeletionTimestamp == nil || slices.Contains(volume.Finalizers, volumeFinalizer) {
		return
	}
	d.mu.Lock()
	d.done[volume.UID] = struct{}{}
	d.mu.Unlock()
	// The informer may have been faster than the answer.
	if _, known, _ := d.store.GetByKey(volume.Name); !known {
		d.forget(volume.UID)
	}
}

// finished tells whether nothing is left to do for a volume that was in the cache.
// What is forgotten has left the cache before, so one of the two knows.
func (d *deletions) finished(volume *corev1.PersistentVolume) bool {
	d.mu.Lock()
	_, done := d.done[volume.UID]
	d.mu.Unlock()
	if done {
		return true
	}
	cached, known, err := d.store.GetByKey(volume.Name)
	if err != nil || !known {
		return err == nil
	}
	object, ok := cached.(*corev1.PersistentVolume)
	return ok && object.UID != volume.UID
}

func (d *deletions) gone(obj any) {
	if object, ok := lastKnown(obj).(metav1.Object); ok {
		d.forget(object.GetUID())
	}
}

func (d *deletions) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.done, uid)
}

// lastKnown is the object that a DeleteFunc is called with, also where the watch has
// missed its end.
func lastKnown(object any) any {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return object
}
