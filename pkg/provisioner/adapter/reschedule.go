package adapter

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// rescheduled is the store of claims as the library writes to it. After the library has
// removed the selected node of a claim, it stores that claim, in order not to provision
// the outdated version. It would replace a later version, in which the scheduler has
// selected the next node: nothing would provision the claim until it changes again. So
// nothing is stored, and the outdated version is skipped.
type rescheduled struct {
	cache.Store

	mu sync.Mutex
	// outdated are resource versions by the keys of claims.
	outdated map[string]string
}

func newRescheduled(claims cache.Store) *rescheduled {
	return &rescheduled{Store: claims, outdated: map[string]string{}}
}

// Update is called by the library with the outdated version, without its selected node.
func (r *rescheduled) Update(object any) error {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return fmt.Errorf("update of the claims in the cache: %T is not a claim", object)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, version := range r.outdated {
		if !r.has(key, version) {
			delete(r.outdated, key)
		}
	}
	r.outdated[claimKey(claim)] = claim.ResourceVersion
	return nil
}

// has reports whether the cache still has this version of a claim.
func (r *rescheduled) has(key, version string) bool {
	object, _, err := r.GetByKey(key)
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	return err == nil && ok && claim.ResourceVersion == version
}

// skips reports whether the selected node of this version has been removed.
func (r *rescheduled) skips(claim *corev1.PersistentVolumeClaim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	version, found := r.outdated[claimKey(claim)]
	return found && version == claim.ResourceVersion
}

func claimKey(claim *corev1.PersistentVolumeClaim) string {
	return cache.MetaObjectToName(claim).String()
}
