package provisioner

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// nameIndex finds the claims that still want a volume by that volume's name.
const nameIndex = "volumeName"

func indexName(naming plan.Naming) cache.IndexFunc {
	return func(object any) ([]string, error) {
		claim, ok := object.(*corev1.PersistentVolumeClaim)
		if !ok || claim.Spec.VolumeName != "" {
			return nil, nil
		}
		return []string{naming.Name(claim.UID)}, nil
	}
}

// again has the library look at claims whose volume's name has become free. It
// leaves a claim alone while there is a PersistentVolume of that name, also one
// that is going or another claim's, and would look again at the next resync only.
type again struct {
	cache.SharedIndexInformer // of the claims
	library                   cache.ResourceEventHandler
}

// AddEventHandlerWithResyncPeriod is called by the library, once.
func (a *again) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	a.library = handler
	return a.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, resync)
}

// volumeGone is for the informer of PersistentVolumes.
func (a *again) volumeGone(object any) {
	volume, ok := lastKnown(object).(metav1.Object)
	if !ok {
		return
	}
	claims, err := a.GetIndexer().ByIndex(nameIndex, volume.GetName())
	if err != nil {
		return // there is no such index
	}
	for _, claim := range claims {
		a.library.OnUpdate(claim, claim)
	}
}
