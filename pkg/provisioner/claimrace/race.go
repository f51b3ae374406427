// Package claimrace assigns claims to nodes where no scheduler does: the provisioner
// of every node tries to write its node's name on the claim, each after a random
// delay, and the API server lets one of them win.
package claimrace

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/util"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/workers"
)

// concurrentTries is how many claims are tried concurrently, each with at most one
// call to the driver and one request to the API server.
const concurrentTries = 4

// Driver reports the capacity of its node.
type Driver interface {
	GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error)
}

// Config of a Race.
type Config struct {
	// Cluster.Node gets claims; it only takes part with Node.Immediate.
	Cluster *cluster.Cluster
	Driver  Driver
	// Options of every volume.
	Options plan.Options
	// MinDelay and MaxDelay bound the delay before a try, of which a random part
	// is used. It doubles with each try that is lost.
	MinDelay, MaxDelay time.Duration
}

// Race is one node's part in the race for claims.
type Race struct {
	config Config
	queue  workqueue.TypedRateLimitingInterface[string]

	mu      sync.Mutex
	entered map[string]bool // by namespace/name
}

// New returns a Race. Without Node.Immediate it ignores all claims.
func New(config Config) *Race {
	r := &Race{config: config, entered: map[string]bool{}}
	if config.Cluster.Node.Immediate {
		limiter := jittered{workqueue.NewTypedItemExponentialFailureRateLimiter[string](config.MinDelay, config.MaxDelay)}
		r.queue = workqueue.NewTypedRateLimitingQueueWithConfig[string](limiter,
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "contest"}) // the name in the metrics
	}
	return r
}

// jittered delays by a random part of the whole.
type jittered struct {
	workqueue.TypedRateLimiter[string]
}

func (j jittered) When(key string) time.Duration {
	//nolint:gosec // only spreads the tries of the nodes
	return time.Duration(rand.Int64N(int64(j.TypedRateLimiter.When(key)) + 1))
}

// Enter queues a claim that has no selected node, once.
func (r *Race) Enter(claim *corev1.PersistentVolumeClaim) {
	if r.config.Cluster.Node.Immediate && claim.Annotations[plan.SelectedNodeAnnotation] == "" && r.config.Cluster.Wants(claim) {
		r.enter(cache.MetaObjectToName(claim).String())
	}
}

func (r *Race) enter(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.entered[key] {
		r.entered[key] = true
		r.queue.AddRateLimited(key)
	}
}

// Run tries for claims until ctx ends. The caches must be filled.
func (r *Race) Run(ctx context.Context) {
	if !r.config.Cluster.Node.Immediate {
		return
	}
	defer workers.Start(ctx, r.queue, concurrentTries, r.process)()
	<-ctx.Done()
}

func (r *Race) process(ctx context.Context, key string) {
	// Before the claim is read, so that a later change enters it anew.
	r.mu.Lock()
	delete(r.entered, key)
	r.mu.Unlock()
	requeue, err := r.try(ctx, key)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to assign claim to this node", logkeys.PVC, key)
	}
	if requeue || err != nil {
		r.enter(key)
	} else {
		r.queue.Forget(key)
	}
}

// try assigns the claim to this node if it is still unassigned. requeue is true if it
// stays unassigned.
func (r *Race) try(ctx context.Context, key string) (requeue bool, err error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return false, err
	}
	claim, err := r.config.Cluster.Claim(name.Namespace, name.Name)
	if apierrors.IsNotFound(err) || err == nil && (claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	class, err := r.config.Cluster.Class(ctx, util.GetPersistentVolumeClaimClass(claim))
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil || r.config.Cluster.Node.Assignment(claim, class) != plan.Unassigned {
		return false, err
	}
	if !r.hasSource(claim) {
		return true, nil
	}
	if !r.fits(ctx, claim, class) {
		return true, nil
	}
	return r.assign(ctx, claim)
}

// hasSource reports whether the source of a clone is on this node, as far as that is
// known: a clone is made where its source is.
func (r *Race) hasSource(claim *corev1.PersistentVolumeClaim) bool {
	origin, _ := plan.ClaimOriginOf(claim)
	if origin.Kind != plan.ClaimOrigin {
		return true
	}
	source, err := r.config.Cluster.Claim(origin.Namespace, origin.Name)
	if err != nil {
		return true // the node that wins the claim reports it
	}
	volume, err := r.config.Cluster.Volume(source.Spec.VolumeName)
	return err == nil && r.config.Cluster.Node.Holds(r.config.Cluster.AsCSI(volume))
}

// fits asks the driver, whatever it declares, with the request that it would get. It
// takes a claim if there is no answer: the driver then says itself what is wrong.
func (r *Race) fits(ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	creation, err := plan.NewCreation(r.config.Options, claim, class, string(claim.UID))
	if err != nil {
		return true // the node that wins the claim reports it
	}
	capacity, err := r.config.Driver.GetCapacity(ctx, &csi.GetCapacityRequest{
		VolumeCapabilities: creation.Request.GetVolumeCapabilities(),
		Parameters:         creation.Request.GetParameters(),
		AccessibleTopology: &csi.Topology{Segments: r.config.Cluster.Node.Segment},
	})
	if err != nil {
		klog.FromContext(ctx).V(3).Info("Assigning a claim without knowing the capacity of this node", logkeys.PVC, klog.KObj(claim), logkeys.Reason, err.Error())
		return true
	}
	return plan.Fits(claim, capacity)
}

// assign writes this node's name on the claim, unless the claim has been assigned,
// bound or deleted. It writes the live claim back, since the cached one lacks what was
// trimmed, and does not patch: the ClusterRole of external-provisioner has no such
// permission.
func (r *Race) assign(ctx context.Context, cached *corev1.PersistentVolumeClaim) (requeue bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim, err := r.config.Cluster.LiveClaim(ctx, cached.Namespace, cached.Name)
		if err != nil || claim == nil || claim.UID != cached.UID || taken(claim) {
			return err
		}
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, plan.SelectedNodeAnnotation, r.config.Cluster.Node.Name)
		_, err = r.config.Cluster.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
		if err == nil {
			klog.FromContext(ctx).V(2).Info("Assigned claim to this node", logkeys.PVC, klog.KObj(claim))
		}
		return err
	})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsConflict(err):
		return true, nil
	default:
		return true, err
	}
}

// taken reports whether nobody needs to be assigned to a claim any more.
func taken(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[plan.SelectedNodeAnnotation] != "" || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil
}
