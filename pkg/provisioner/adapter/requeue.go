package adapter

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// nameIndex finds the claims that wait for a volume by that volume's name.
const nameIndex = "volumeName"

// requeuer passes claims to the library again when a PersistentVolume with the name
// of their volume is gone. The library skips a claim while there is one, also if it is
// being deleted or another claim's, and would see the claim next at a resync.
type requeuer struct {
	cache.SharedIndexInformer // of the claims
	library                   cache.ResourceEventHandler
	rescheduled               *rescheduled
}

func newRequeuer(claims cache.SharedIndexInformer, naming plan.Naming) (*requeuer, error) {
	index := func(object any) ([]string, error) {
		claim, ok := object.(*corev1.PersistentVolumeClaim)
		if !ok || claim.Spec.VolumeName != "" {
			return nil, nil
		}
		return []string{naming.Name(claim.UID)}, nil
	}
	requeuer := &requeuer{SharedIndexInformer: claims, rescheduled: newRescheduled(claims.GetStore())}
	return requeuer, claims.AddIndexers(cache.Indexers{nameIndex: index})
}

// GetStore is called by the library, which writes to the store.
func (r *requeuer) GetStore() cache.Store { return r.rescheduled }

// AddEventHandlerWithResyncPeriod is called by the library, once.
func (r *requeuer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	r.library = handler
	return r.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, resync)
}

// volumeGone is for the deletion of a PersistentVolume.
func (r *requeuer) volumeGone(name string) {
	claims, err := r.GetIndexer().ByIndex(nameIndex, name)
	if err != nil {
		return // there is no such index
	}
	for _, claim := range claims {
		r.library.OnUpdate(claim, claim)
	}
}
