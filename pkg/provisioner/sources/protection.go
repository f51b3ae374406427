package sources

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/workers"
)

// originIndex finds the claims that wait for a volume by its origin.
const originIndex = "origin"

// ProtectionConfig configures a Protection.
type ProtectionConfig struct {
	Sources Reader
	// Cluster.Node is set where other processes of the same driver protect origins too.
	// Their holds are not known here: only a sweep finds what they left behind.
	Cluster *cluster.Cluster
	// Limiter delays failed removals.
	Limiter workqueue.TypedRateLimiter[plan.Origin]
	// Workers remove finalizers concurrently.
	Workers int
	// SweepInterval is the time between searches for stale finalizers. With 0, those of
	// snapshots are not searched for, and those of claims at an interval of its own.
	SweepInterval time.Duration
}

// Protection keeps the origins of volumes from being deleted, with a finalizer, until
// no claim and no unfinished volume needs them. An origin that is being deleted already
// is of no use to a claim whose volume has not begun.
type Protection struct {
	config ProtectionConfig
	claims cache.Indexer
	queue  workqueue.TypedRateLimitingInterface[plan.Origin]

	mu    sync.Mutex
	holds map[plan.Origin]*hold
}

// hold is the set of volumes that need an origin. Its lock is held while the
// finalizer changes.
type hold struct {
	mu      sync.Mutex
	volumes map[string]bool // by name
	own     bool            // was needed by a volume of this process
	dropped bool            // no longer in Protection.holds
}

// NewProtection adds an index and a handler to the informer of claims, which must not
// have started.
func NewProtection(config ProtectionConfig) (*Protection, error) {
	claims := config.Cluster.Informers.Core().V1().PersistentVolumeClaims().Informer()
	if err := claims.AddIndexers(cache.Indexers{originIndex: indexOrigin}); err != nil {
		return nil, err
	}
	p := &Protection{
		config: config,
		claims: claims.GetIndexer(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(config.Limiter,
			workqueue.TypedRateLimitingQueueConfig[plan.Origin]{Name: "protected"}),
		holds: map[plan.Origin]*hold{},
	}
	if p.shared() {
		// Their claims are left to the process that serves them, and to the sweep.
		return p, nil
	}
	_, err := claims.AddEventHandler(p.handler())
	return p, err
}

// shared is true where each node has a process that protects origins.
func (p *Protection) shared() bool { return !p.config.Cluster.Node.IsZero() }

// indexOrigin is the cache.IndexFunc of originIndex.
func indexOrigin(object any) ([]string, error) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName != "" {
		return nil, nil
	}
	if origin, _ := plan.ClaimOriginOf(claim); !origin.IsZero() {
		return []string{origin.String()}, nil
	}
	return nil, nil
}

// Adopt records that a volume needs its origin, which an earlier process has
// protected.
func (p *Protection) Adopt(origin plan.Origin, volume string) {
	if origin.IsZero() {
		return
	}
	h := p.lock(origin)
	defer h.mu.Unlock()
	h.add(volume)
}

// Hold protects the origin of a volume.
func (p *Protection) Hold(ctx context.Context, origin plan.Origin, volume string) error {
	if origin.IsZero() {
		return nil
	}
	h := p.lock(origin)
	defer h.mu.Unlock()
	h.add(volume)
	if err := p.setFinalizer(ctx, origin, true); err != nil {
		return fmt.Errorf("%w: protect %s: %w", plan.ErrSource, origin, err)
	}
	return nil
}

// Release ends a volume's need for its origin. The finalizer is removed when nothing
// else needs the origin.
func (p *Protection) Release(origin plan.Origin, volume string) {
	if origin.IsZero() {
		return
	}
	h := p.lock(origin)
	delete(h.volumes, volume)
	h.mu.Unlock()
	p.queue.Add(origin)
}

// Run removes finalizers until ctx ends. The caches must be filled.
func (p *Protection) Run(ctx context.Context) {
	defer workers.Start(ctx, p.queue, p.config.Workers, p.process)()
	p.sweep(ctx)
}

func (p *Protection) process(ctx context.Context, origin plan.Origin) {
	if err := p.removeUnneeded(ctx, origin); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to remove source protection", logkeys.Origin, origin.String())
		p.queue.AddRateLimited(origin)
	} else {
		p.queue.Forget(origin)
	}
}

// lock returns the origin's hold, locked.
func (p *Protection) lock(origin plan.Origin) *hold {
	for {
		p.mu.Lock()
		if p.holds[origin] == nil {
			p.holds[origin] = &hold{volumes: map[string]bool{}}
		}
		h := p.holds[origin]
		p.mu.Unlock()
		h.mu.Lock()
		if !h.dropped {
			return h
		}
		h.mu.Unlock()
	}
}

func (h *hold) add(volume string) {
	h.volumes[volume], h.own = true, true
}

// needed reports whether a volume or a claim needs the origin.
func (p *Protection) needed(h *hold, origin plan.Origin) (bool, error) {
	waiting, err := p.claims.ByIndex(originIndex, origin.String())
	return len(h.volumes) > 0 || len(waiting) > 0, err
}

// usable reports whether a volume can still be filled from an origin.
func (p *Protection) usable(ctx context.Context, origin plan.Origin) (bool, error) {
	object, err := p.get(ctx, origin)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && object.GetDeletionTimestamp() == nil, err
}

// removeUnneeded removes the finalizer of an origin that nothing needs.
func (p *Protection) removeUnneeded(ctx context.Context, origin plan.Origin) error {
	h := p.lock(origin)
	defer h.mu.Unlock()
	needed, err := p.needed(h, origin)
	if needed && err == nil && len(h.volumes) == 0 && !p.shared() {
		// Only claims wait for it, in vain if it is being deleted.
		needed, err = p.usable(ctx, origin)
	}
	if needed || err != nil {
		return err
	}
	foreign := false
	if !h.own {
		if foreign, err = p.foreign(ctx, origin); err != nil {
			return fmt.Errorf("look up the driver of %s: %w", origin, err)
		}
	}
	if !foreign {
		if err := p.setFinalizer(ctx, origin, false); err != nil {
			return fmt.Errorf("remove finalizer %s of %s: %w", finalizerOf(origin), origin, err)
		}
	}
	h.dropped = true
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.holds, origin)
	return nil
}
