package adapter

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// deletions are the PersistentVolumes that this process has deleted and removed its
// finalizer from. The cache still has them for a while: each change made by a
// deletion is an event, and would have the volume deleted again at the driver and at
// the API server.
type deletions struct {
	store cache.Store

	mu   sync.Mutex
	done map[types.UID]struct{}
}

func newDeletions(volumes cache.Store) *deletions {
	return &deletions{store: volumes, done: map[types.UID]struct{}{}}
}

// patched records the result of a patch.
func (d *deletions) patched(volume *corev1.PersistentVolume) {
	if volume.UID == "" || volume.DeletionTimestamp == nil || slices.Contains(volume.Finalizers, plan.VolumeFinalizer) {
		return
	}
	d.mu.Lock()
	d.done[volume.UID] = struct{}{}
	d.mu.Unlock()
	// The informer may have been faster than the response.
	if _, known, _ := d.store.GetByKey(volume.Name); !known {
		d.forget(volume.UID)
	}
}

// finished reports whether a volume that was in the cache is deleted. A volume is
// forgotten only after it has left the cache, so one of the two knows.
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

// forget is for the deletion of a PersistentVolume.
func (d *deletions) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.done, uid)
}
