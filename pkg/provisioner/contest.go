package provisioner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/util"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// contestWorkers is how many claims are tried for at a time, each with at most a
// question to the driver and a request to the API server.
const contestWorkers = 4

// contest takes claims that no scheduler places for this node: the provisioner of
// every node tries, at times that differ by chance, and the API server lets one of
// them write its node's name on the claim. The others see that and leave it alone.
type contest struct {
	*Provisioner
	queue workqueue.TypedRateLimitingInterface[string]

	mu      sync.Mutex
	entered map[string]bool // by namespace/name
}

func newContest(p *Provisioner) *contest {
	limiter := jittered{workqueue.NewTypedItemExponentialFailureRateLimiter[string](p.config.ContestMin, p.config.ContestMax)}
	return &contest{
		Provisioner: p,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig[string](limiter,
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "contest"}),
		entered: map[string]bool{},
	}
}

// jittered waits for any time from none to the whole.
type jittered struct {
	workqueue.TypedRateLimiter[string]
}

func (j jittered) When(key string) time.Duration {
	//nolint:gosec // only keeps many from doing the same at the same time
	return time.Duration(rand.Int64N(int64(j.TypedRateLimiter.When(key)) + 1))
}

// enter has the claim tried for some time later, once.
func (c *contest) enter(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.entered[key] {
		c.entered[key] = true
		c.queue.AddRateLimited(key)
	}
}

// run tries for claims until ctx ends.
func (c *contest) run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	defer c.queue.ShutDown()
	for range contestWorkers {
		workers.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
}

// work tries for claims until the queue is shut down.
func (c *contest) work(ctx context.Context) {
	for {
		key, stopped := c.queue.Get()
		if stopped {
			return
		}
		// Before the look at the claim: what becomes of it from now on enters anew.
		c.mu.Lock()
		delete(c.entered, key)
		c.mu.Unlock()
		again, err := c.try(ctx, key)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot take a claim for this node, trying again", logPVC, key)
		}
		if again || err != nil {
			c.enter(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

// try takes the claim if it is still to be had. again is true when it is, but not
// now for this node.
func (c *contest) try(ctx context.Context, key string) (again bool, err error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return false, err
	}
	claim, err := c.claims.PersistentVolumeClaims(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && (claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	class, err := c.classes.Get(util.GetPersistentVolumeClaimClass(claim))
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err == nil {
		class, _, err = c.migration.Class(klog.FromContext(ctx), class)
	}
	if err != nil || c.config.Node.Assignment(claim, class) != plan.Unassigned {
		return false, err
	}
	if !c.reaches(claim) {
		return true, nil
	}
	if fits, err := c.fits(ctx, claim, class); !fits || err != nil {
		return true, err
	}
	return c.take(ctx, claim)
}

// reaches tells whether what the claim is to be filled from is here, as far as that
// is known: a clone is made where its source is.
func (c *contest) reaches(claim *corev1.PersistentVolumeClaim) bool {
	origin, _ := plan.ClaimOriginOf(claim)
	if origin.Kind != plan.ClaimOrigin {
		return true
	}
	source, err := c.claims.PersistentVolumeClaims(origin.Namespace).Get(origin.Name)
	if err != nil {
		return true // whoever takes the claim tells it
	}
	volume, err := c.volumes.Get(source.Spec.VolumeName)
	return err == nil && c.config.Node.Holds(c.asCSI(volume))
}

// fits asks the driver, if it can tell.
func (c *contest) fits(ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (bool, error) {
	if !c.config.Driver.Capabilities().Capacity {
		return true, nil
	}
	parsed, err := plan.ParseClass(class.Parameters)
	if err != nil {
		// Whoever takes the claim tells it what is wrong with its class.
		return true, nil //nolint:nilerr // as said
	}
	room, err := c.config.Driver.GetCapacity(ctx, &csi.GetCapacityRequest{
		Parameters:         parsed.Parameters,
		AccessibleTopology: &csi.Topology{Segments: c.config.Node.Segment},
	})
	if err != nil {
		return false, fmt.Errorf("find out how much room there is: %w", c.failure("GetCapacity", err, nil))
	}
	return plan.Fits(claim, room), nil
}

// take writes this node's name on the claim, unless anything has changed of it.
func (c *contest) take(ctx context.Context, claim *corev1.PersistentVolumeClaim) (again bool, err error) {
	patch, err := metadataPatch(claim, "annotations", map[string]string{plan.SelectedNodeAnnotation: c.config.Node.Name})
	if err != nil {
		return false, err
	}
	_, err = c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).
		Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		klog.FromContext(ctx).V(2).Info("Took a claim for this node", logPVC, klog.KObj(claim))
		return false, nil
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsConflict(err):
		// Often another node has it, which the cache will soon say.
		return true, nil
	default:
		return true, err
	}
}
