package sources

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// claimSweepInterval applies where snapshots are not swept.
const claimSweepInterval = 5 * time.Minute

// sweep queues every origin with a finalizer, now and once per interval, to find what
// a dead process left behind. A failed list removes nothing.
func (p *Protection) sweep(ctx context.Context) {
	var suspects map[plan.Origin]bool
	interval := cmp.Or(p.config.SweepInterval, claimSweepInterval)
	for ctx.Err() == nil {
		found := p.protectedClaims()
		if p.config.Cluster.Driver.Snapshots && p.config.SweepInterval > 0 {
			found = append(found, p.protectedSnapshots(ctx)...)
		}
		suspects = p.queueOrphans(found, suspects)
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

// queueOrphans returns the suspects for the next sweep. Where origins are shared, it
// queues only those that were unneeded in the last sweep too: another process may
// just have protected them for a claim that is not in the cache yet.
func (p *Protection) queueOrphans(found []plan.Origin, suspects map[plan.Origin]bool) map[plan.Origin]bool {
	next := map[plan.Origin]bool{}
	for _, origin := range found {
		unneeded := !p.shared() || p.seemsUnneeded(origin)
		if unneeded && (!p.shared() || suspects[origin]) {
			p.queue.Add(origin)
		}
		next[origin] = unneeded
	}
	return next
}

func (p *Protection) seemsUnneeded(origin plan.Origin) bool {
	p.mu.Lock()
	h := p.holds[origin]
	p.mu.Unlock()
	if h == nil {
		h = &hold{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	needed, err := p.needed(h, origin)
	return !needed && err == nil
}

func (p *Protection) protectedClaims() []plan.Origin {
	var found []plan.Origin
	for _, object := range p.claims.List() {
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && isProtected(claim) {
			found = append(found, asOrigin(claim))
		}
	}
	return found
}

func (p *Protection) protectedSnapshots(ctx context.Context) []plan.Origin {
	found, err := p.config.Sources.protectedSnapshots(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Skipped snapshots in the search for stale finalizers", logkeys.Reason, err.Error())
	}
	return found
}

func isProtected(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Finalizers, CloningFinalizer)
}

// asOrigin is the claim as a source of clones.
func asOrigin(claim *corev1.PersistentVolumeClaim) plan.Origin {
	return plan.Origin{Kind: plan.ClaimOrigin, Namespace: claim.Namespace, Name: claim.Name}
}

// handler queues the origin of a claim that no longer waits for its volume, and a
// protected claim that is being deleted.
func (p *Protection) handler() cache.ResourceEventHandler {
	enqueue := func(object any) {
		claim, ok := cluster.LastKnown(object).(*corev1.PersistentVolumeClaim)
		if !ok {
			return
		}
		if origin, _ := plan.ClaimOriginOf(claim); !origin.IsZero() && p.config.Cluster.Wants(claim) {
			p.queue.Add(origin)
		}
		if claim.DeletionTimestamp != nil && isProtected(claim) {
			p.queue.Add(asOrigin(claim))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, updated any) {
			before, _ := old.(*corev1.PersistentVolumeClaim)
			after, _ := updated.(*corev1.PersistentVolumeClaim)
			bound := before != nil && after != nil && before.Spec.VolumeName == "" && after.Spec.VolumeName != ""
			deleted := after != nil && after.DeletionTimestamp != nil
			if bound || deleted {
				enqueue(updated)
			}
		},
		DeleteFunc: enqueue,
	}
}
