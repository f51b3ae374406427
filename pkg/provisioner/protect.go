package provisioner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

const (
	cloningFinalizer  = "provisioner.storage.kubernetes.io/cloning-protection"
	snapshotFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"

	// originIndex finds the claims that still want a volume by what it is to be
	// filled from.
	originIndex = "origin"
)

// protection keeps what volumes are being filled from, with a finalizer, until no
// claim needs it any longer.
type protection struct {
	client  kubernetes.Interface
	sources sources
	claims  cache.Indexer
	queue   workqueue.TypedRateLimitingInterface[plan.Origin]
	// shared is set where other processes of the same driver protect origins too,
	// whose holds are not known here: then only a sweep finds what they left.
	shared bool
	// foreign tells whether an origin is another driver's, whose process protects it.
	foreign func(context.Context, plan.Origin) (bool, error)
	// wants tells whether a claim is for this driver.
	wants func(*corev1.PersistentVolumeClaim) bool

	mu   sync.Mutex
	held map[plan.Origin]*hold
}

// hold is by whom an origin is being used: the names of the volumes. Its lock is
// kept while the finalizer is changed.
type hold struct {
	mu        sync.Mutex
	names     map[string]bool
	own       bool // a volume has needed it
	forgotten bool // no longer in the map
}

func newProtection(client kubernetes.Interface, sources sources, claims cache.Indexer, limiter workqueue.TypedRateLimiter[plan.Origin]) *protection {
	return &protection{
		client:  client,
		sources: sources,
		claims:  claims,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[plan.Origin]{Name: "protected"}),
		held: map[plan.Origin]*hold{},
	}
}

// indexOrigin is the function of originIndex.
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

func finalizerOf(origin plan.Origin) string {
	if origin.Kind == plan.SnapshotOrigin {
		return snapshotFinalizer
	}
	return cloningFinalizer
}

// lock returns the origin's hold, locked.
func (p *protection) lock(origin plan.Origin) *hold {
	for {
		p.mu.Lock()
		if p.held[origin] == nil {
			p.held[origin] = &hold{names: map[string]bool{}}
		}
		h := p.held[origin]
		p.mu.Unlock()
		h.mu.Lock()
		if !h.forgotten {
			return h
		}
		h.mu.Unlock()
	}
}

// claim counts a volume as one that needs its origin, none if zero, which an
// earlier process has protected.
func (p *protection) claim(origin plan.Origin, volume string) {
	if origin.IsZero() {
		return
	}
	h := p.lock(origin)
	defer h.mu.Unlock()
	h.use(volume)
}

// hold protects the origin of a volume, if it has one.
func (p *protection) hold(ctx context.Context, origin plan.Origin, volume string) error {
	if origin.IsZero() {
		return nil
	}
	h := p.lock(origin)
	defer h.mu.Unlock()
	h.use(volume)
	if err := p.setFinalizer(ctx, origin, true); err != nil {
		return fmt.Errorf("%w: keep %s from being deleted meanwhile: %w", plan.ErrSource, origin, err)
	}
	return nil
}

func (h *hold) use(volume string) {
	h.names[volume], h.own = true, true
}

// release gives up the origin of a volume. The finalizer goes when nobody else
// needs it.
func (p *protection) release(origin plan.Origin, volume string) {
	if origin.IsZero() {
		return
	}
	h := p.lock(origin)
	delete(h.names, volume)
	h.mu.Unlock()
	p.queue.Add(origin)
}

// needed tells whether a volume or a claim needs the origin, as far as is known here.
func (p *protection) needed(h *hold, origin plan.Origin) (bool, error) {
	waiting, err := p.claims.ByIndex(originIndex, origin.String())
	return len(h.names) > 0 || len(waiting) > 0, err
}

// check removes the finalizer of an origin that nobody needs.
func (p *protection) check(ctx context.Context, origin plan.Origin) error {
	h := p.lock(origin)
	defer h.mu.Unlock()
	if needed, err := p.needed(h, origin); needed || err != nil {
		return err
	}
	foreign := false
	if !h.own {
		var err error
		if foreign, err = p.foreign(ctx, origin); err != nil {
			return fmt.Errorf("find out whose finalizer %s of %s is: %w", finalizerOf(origin), origin, err)
		}
	}
	if !foreign {
		if err := p.setFinalizer(ctx, origin, false); err != nil {
			return fmt.Errorf("remove finalizer %s of %s: %w", finalizerOf(origin), origin, err)
		}
	}
	h.forgotten = true
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, origin)
	return nil
}

// setFinalizer changes nothing but the finalizers, and of those one.
func (p *protection) setFinalizer(ctx context.Context, origin plan.Origin, wanted bool) error {
	finalizer := finalizerOf(origin)
	for {
		object, err := p.meta(ctx, origin)
		if apierrors.IsNotFound(err) && !wanted {
			return nil
		}
		if err != nil {
			return err
		}
		finalizers := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(have string) bool { return have == finalizer })
		if wanted == (len(finalizers) < len(object.GetFinalizers())) {
			return nil
		}
		if wanted {
			finalizers = append(finalizers, finalizer)
		}
		patch, err := metadataPatch(object, "finalizers", finalizers)
		if err != nil {
			return err
		}
		if err = p.patch(ctx, origin, patch); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// metadataPatch changes one field of an object, unless anything has changed of it.
func metadataPatch(object metav1.Object, field string, value any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{
		field: value, "resourceVersion": object.GetResourceVersion(), "uid": object.GetUID(),
	}})
}

func (p *protection) meta(ctx context.Context, origin plan.Origin) (metav1.Object, error) {
	if origin.Kind == plan.SnapshotOrigin {
		return p.sources.snapshotMeta(ctx, origin)
	}
	return p.client.CoreV1().PersistentVolumeClaims(origin.Namespace).Get(ctx, origin.Name, metav1.GetOptions{})
}

func (p *protection) patch(ctx context.Context, origin plan.Origin, patch []byte) error {
	if origin.Kind == plan.SnapshotOrigin {
		return p.sources.patchSnapshot(ctx, origin, patch)
	}
	_, err := p.client.CoreV1().PersistentVolumeClaims(origin.Namespace).
		Patch(ctx, origin.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
