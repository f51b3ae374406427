package provisioner

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// work checks what is queued, until ctx ends.
func (p *protection) work(ctx context.Context) {
	for {
		origin, stopped := p.queue.Get()
		if stopped {
			return
		}
		if err := p.check(ctx, origin); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Will be tried again")
			p.queue.AddRateLimited(origin)
		} else {
			p.queue.Forget(origin)
		}
		p.queue.Done(origin)
	}
}

// sweep queues every origin with a finalizer, now and once per interval: what was
// left by a process that died. A list that fails leads to nothing.
func (p *protection) sweep(ctx context.Context, interval time.Duration, snapshots bool) {
	var suspects map[plan.Origin]bool
	for {
		found := p.protectedClaims()
		if snapshots {
			found = append(found, p.protectedSnapshots(ctx)...)
		}
		suspects = p.queueOrphans(found, suspects)
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}

// queueOrphans returns the suspects for the next time. Where origins are shared,
// only those are queued that looked unneeded the last time too: another process may
// just have protected them for a claim that is not in the cache yet.
func (p *protection) queueOrphans(found []plan.Origin, suspects map[plan.Origin]bool) map[plan.Origin]bool {
	next := map[plan.Origin]bool{}
	for _, origin := range found {
		unneeded := !p.shared || p.looksUnneeded(origin)
		if unneeded && (!p.shared || suspects[origin]) {
			p.queue.Add(origin)
		}
		next[origin] = unneeded
	}
	return next
}

func (p *protection) looksUnneeded(origin plan.Origin) bool {
	p.mu.Lock()
	h := p.held[origin]
	p.mu.Unlock()
	if h == nil {
		h = &hold{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	needed, err := p.needed(h, origin)
	return !needed && err == nil
}

func (p *protection) protectedClaims() []plan.Origin {
	var found []plan.Origin
	for _, object := range p.claims.List() {
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && isProtected(claim) {
			found = append(found, originOf(claim))
		}
	}
	return found
}

func (p *protection) protectedSnapshots(ctx context.Context) []plan.Origin {
	found, err := p.sources.protectedSnapshots(ctx, snapshotFinalizer)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("No snapshots are looked through for finalizers left behind", "reason", err.Error())
	}
	return found
}

func isProtected(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Finalizers, cloningFinalizer)
}

// originOf is the claim as what others are filled from.
func originOf(claim *corev1.PersistentVolumeClaim) plan.Origin {
	return plan.Origin{Kind: plan.ClaimOrigin, Namespace: claim.Namespace, Name: claim.Name}
}

// handler queues the origin of a claim that no longer waits for its volume, and a
// protected claim that is being deleted. Where origins are shared that is left to
// the process whose claim it was, and to the sweep.
func (p *protection) handler() cache.ResourceEventHandler {
	if p.shared {
		return cache.ResourceEventHandlerFuncs{}
	}
	look := func(object any) {
		claim, ok := lastKnown(object).(*corev1.PersistentVolumeClaim)
		if !ok {
			return
		}
		if origin, _ := plan.ClaimOriginOf(claim); !origin.IsZero() && p.wants(claim) {
			p.queue.Add(origin)
		}
		if claim.DeletionTimestamp != nil && isProtected(claim) {
			p.queue.Add(originOf(claim))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, updated any) {
			before, _ := old.(*corev1.PersistentVolumeClaim)
			after, _ := updated.(*corev1.PersistentVolumeClaim)
			bound := before != nil && after != nil && before.Spec.VolumeName == "" && after.Spec.VolumeName != ""
			deleted := after != nil && after.DeletionTimestamp != nil
			if bound || deleted {
				look(updated)
			}
		},
		DeleteFunc: look,
	}
}
