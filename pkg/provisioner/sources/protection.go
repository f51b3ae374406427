package sources

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// The finalizers that protect sources.
const (
	CloningFinalizer  = "provisioner.storage.kubernetes.io/cloning-protection"
	SnapshotFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
)

// originIndex finds the claims that wait for a volume by its origin.
const originIndex = "origin"

// Cluster reads claims and their volumes.
type Cluster interface {
	Claim(namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Volume(name string) (*corev1.PersistentVolume, error)
	// AsCSI translates a volume of an in-tree plugin.
	AsCSI(volume *corev1.PersistentVolume) *corev1.PersistentVolume
	// Wants reports whether the driver provisions a claim.
	Wants(claim *corev1.PersistentVolumeClaim) bool
}

// ProtectionConfig configures a Protection.
type ProtectionConfig struct {
	Client  kubernetes.Interface
	Sources Reader
	Cluster Cluster
	Driver  plan.Capabilities
	// Shared is set where other processes of the same driver protect origins too.
	// Their holds are not known here: only a sweep finds what they left behind.
	Shared bool
	// Limiter delays failed removals.
	Limiter workqueue.TypedRateLimiter[plan.Origin]
	// Workers remove finalizers concurrently.
	Workers int
	// SweepInterval is the time between searches for stale finalizers.
	SweepInterval time.Duration
}

// Protection keeps the origins of volumes from being deleted, with a finalizer, until
// no claim and no unfinished volume needs them.
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
func NewProtection(config ProtectionConfig, claims cache.SharedIndexInformer) (*Protection, error) {
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
	if config.Shared {
		// Their claims are left to the process that serves them, and to the sweep.
		return p, nil
	}
	_, err := claims.AddEventHandler(p.handler())
	return p, err
}

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
	var workers sync.WaitGroup
	defer workers.Wait()
	defer p.queue.ShutDown()
	for range p.config.Workers {
		workers.Go(func() { p.work(ctx) })
	}
	p.sweep(ctx)
}

func (p *Protection) work(ctx context.Context) {
	for {
		origin, stopped := p.queue.Get()
		if stopped {
			return
		}
		if err := p.removeUnneeded(ctx, origin); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to remove source protection", logkeys.Origin, origin.String())
			p.queue.AddRateLimited(origin)
		} else {
			p.queue.Forget(origin)
		}
		p.queue.Done(origin)
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

// removeUnneeded removes the finalizer of an origin that nothing needs.
func (p *Protection) removeUnneeded(ctx context.Context, origin plan.Origin) error {
	h := p.lock(origin)
	defer h.mu.Unlock()
	if needed, err := p.needed(h, origin); needed || err != nil {
		return err
	}
	foreign := false
	if !h.own {
		var err error
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

func finalizerOf(origin plan.Origin) string {
	if origin.Kind == plan.SnapshotOrigin {
		return SnapshotFinalizer
	}
	return CloningFinalizer
}

// setFinalizer adds or removes the finalizer and leaves all others alone.
func (p *Protection) setFinalizer(ctx context.Context, origin plan.Origin, present bool) error {
	finalizer := finalizerOf(origin)
	for {
		object, err := p.get(ctx, origin)
		if apierrors.IsNotFound(err) && !present {
			return nil
		}
		if err != nil {
			return err
		}
		finalizers := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return f == finalizer })
		if present == (len(finalizers) < len(object.GetFinalizers())) {
			return nil
		}
		if present {
			finalizers = append(finalizers, finalizer)
		}
		patch, err := cluster.MetadataPatch(object, "finalizers", finalizers)
		if err != nil {
			return err
		}
		if err = p.patch(ctx, origin, patch); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (p *Protection) get(ctx context.Context, origin plan.Origin) (metav1.Object, error) {
	if origin.Kind == plan.SnapshotOrigin {
		return p.config.Sources.snapshots(origin.Namespace).Get(ctx, origin.Name, metav1.GetOptions{})
	}
	return p.config.Client.CoreV1().PersistentVolumeClaims(origin.Namespace).Get(ctx, origin.Name, metav1.GetOptions{})
}

func (p *Protection) patch(ctx context.Context, origin plan.Origin, patch []byte) (err error) {
	if origin.Kind == plan.SnapshotOrigin {
		_, err = p.config.Sources.snapshots(origin.Namespace).Patch(ctx, origin.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	_, err = p.config.Client.CoreV1().PersistentVolumeClaims(origin.Namespace).
		Patch(ctx, origin.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
