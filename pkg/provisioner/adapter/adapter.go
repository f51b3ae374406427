// Package adapter connects the provisioner to sig-storage-lib-external-provisioner,
// which watches claims and PersistentVolumes and queues them. It decides which of
// them are this provisioner's, and works around what the library does otherwise.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// Volumes creates and deletes volumes.
type Volumes interface {
	Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error)
	Delete(ctx context.Context, volume *corev1.PersistentVolume) error
}

// Race assigns claims without a node to one.
type Race interface {
	Enter(claim *corev1.PersistentVolumeClaim)
}

// Config of an Adapter.
type Config struct {
	// Base bounds the lifetime of operations. The library ends the context of an
	// operation as soon as it is asked to stop, but a call to the driver should finish.
	Base context.Context
	// Client writes events, and removes PersistentVolumes.
	Client  kubernetes.Interface
	Cluster *cluster.Cluster
	Race    Race
	Naming  plan.Naming
	// Metrics of the library.
	Metrics metrics.Metrics
	// Retries of claims by UID and of volumes by name, bounded by RetryMin and
	// RetryMax.
	Retries            workqueue.TypedRateLimiter[string]
	RetryMin, RetryMax time.Duration
	// CapacityChanged is called after a volume was created or deleted, and after a creation
	// failed, with its class and, if known, where it is. It may be nil.
	CapacityChanged func(class string, affinity *corev1.VolumeNodeAffinity)
	// Workers create volumes, and as many delete them.
	Workers int
}

// Adapter is what the library calls.
type Adapter struct {
	config      Config
	library     *controller.ProvisionController
	deletions   *deletions
	rescheduled *rescheduled
	// volumes and events are set by Run.
	volumes Volumes
	events  record.EventRecorder
}

var (
	_ controller.BlockProvisioner = (*Adapter)(nil)
	_ controller.Qualifier        = (*Adapter)(nil)
	_ controller.DeletionGuard    = (*Adapter)(nil)
)

// New adds indexes and handlers to informers that have not started. It must not run
// beside other users of Kubernetes clients in this process: the library changes the
// scheme that all of them share.
func New(config Config) (*Adapter, error) {
	core := config.Cluster.Informers.Core().V1()
	volumes := core.PersistentVolumes().Informer()
	a := &Adapter{config: config, deletions: newDeletions(volumes.GetStore())}
	requeuer, err := newRequeuer(core.PersistentVolumeClaims().Informer(), config.Naming)
	if err != nil {
		return nil, err
	}
	a.rescheduled = requeuer.rescheduled
	a.library = controller.NewProvisionController(
		config.Base, // events of the last operations are sent after Run's context ends
		drainingClient{Interface: config.Client, base: config.Base, deletions: a.deletions},
		config.Cluster.Driver.DriverName,
		a,
		a.libraryOptions(requeuer, volumes)...,
	)
	_, err = volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if volume, ok := cluster.LastKnown(object).(*corev1.PersistentVolume); ok {
			a.deletions.forget(volume.UID)
			requeuer.volumeGone(volume.Name)
		}
	}})
	return a, err
}

func (a *Adapter) libraryOptions(claims, volumes cache.SharedIndexInformer) []func(*controller.ProvisionController) error {
	return []func(*controller.ProvisionController) error{
		controller.LeaderElection(false), // the caller's
		controller.AdditionalProvisionerNames(a.config.Cluster.Migration.Names()),
		controller.AddFinalizer(true),
		controller.FailedProvisionThreshold(0), // no limit
		controller.FailedDeleteThreshold(0),
		controller.RateLimiter(a.config.Retries),
		controller.RetryIntervalMax(a.config.RetryMax),
		controller.CreateProvisionedPVLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](a.config.RetryMin, a.config.RetryMax)),
		controller.Threadiness(a.config.Workers),
		controller.ResyncPeriod(cluster.ResyncPeriod),
		controller.VolumeName(func(claim *corev1.PersistentVolumeClaim) string { return a.config.Naming.Name(claim.UID) }),
		controller.MetricsInstance(a.config.Metrics),
		controller.ClaimsInformer(claims),
		controller.VolumesInformer(volumes),
		controller.ClassesInformer(a.config.Cluster.Informers.Storage().V1().StorageClasses().Informer()),
	}
}

// Run works on claims and PersistentVolumes until ctx ends and the operations under
// way have finished. It can be called once.
func (a *Adapter) Run(ctx context.Context, volumes Volumes, events record.EventRecorder) {
	a.volumes, a.events = volumes, events
	var workers sync.WaitGroup
	a.library.ControllerWaitGroup(&workers)
	a.library.Run(ctx)
	workers.Wait()
}

// Provision implements controller.Provisioner.
func (a *Adapter) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	ctx, cancel := detach(ctx, a.config.Base)
	defer cancel()
	volume, state, err := a.volumes.Provision(ctx, options)
	switch {
	case options.StorageClass == nil: // deleted
	case err == nil && volume != nil:
		a.capacityChanged(options.StorageClass.Name, volume.Spec.NodeAffinity)
	case state != controller.ProvisioningNoChange:
		// The driver may be full where the scheduler saw room.
		a.capacityChanged(options.StorageClass.Name, nil)
	}
	return volume, state, a.withDelay(err, string(options.PVC.UID))
}

// Delete implements controller.Provisioner.
func (a *Adapter) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	ctx, cancel := detach(ctx, a.config.Base)
	defer cancel()
	err := a.volumes.Delete(ctx, volume)
	if err == nil {
		a.capacityChanged(volume.Spec.StorageClassName, volume.Spec.NodeAffinity)
	}
	return a.withDelay(err, volume.Name)
}

func (a *Adapter) capacityChanged(class string, affinity *corev1.VolumeNodeAffinity) {
	if a.config.CapacityChanged != nil {
		a.config.CapacityChanged(class, affinity)
	}
}

// withDelay adds the delay until the next try to an error. The library computes it
// only after it has reported the error.
func (a *Adapter) withDelay(err error, key string) error {
	var ignored *controller.IgnoredError
	if err == nil {
		return nil
	}
	if errors.As(err, &ignored) {
		return ignored
	}
	return plan.Retried(err, plan.NextTry(a.config.RetryMin, a.config.RetryMax, a.config.Retries.NumRequeues(key)))
}

// ShouldProvision implements controller.Qualifier. When stopping, the library still
// takes every claim that is queued; it gets through them without a call.
func (a *Adapter) ShouldProvision(ctx context.Context, claim *corev1.PersistentVolumeClaim) bool {
	if ctx.Err() != nil || a.config.Cluster.Migration.WaitsForPlugin(claim) || a.rescheduled.skips(claim) {
		return false
	}
	if a.config.Cluster.Node.Assignment(claim, nil) == plan.AssignedHere {
		a.reportNameConflict(claim)
		return true
	}
	a.config.Race.Enter(claim)
	return false
}

// reportNameConflict reports that another claim's PersistentVolume has the name of
// this claim's. The library mistakes it for this claim's own and is silent.
func (a *Adapter) reportNameConflict(claim *corev1.PersistentVolumeClaim) {
	if !a.config.Cluster.Wants(claim) {
		return
	}
	volume, err := a.config.Cluster.Volume(a.config.Naming.Name(claim.UID))
	if err == nil && plan.OwnedByOther(volume, claim) {
		a.events.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed",
			fmt.Sprintf("PersistentVolume %s exists already and is not this claim's; once it is deleted, the claim's own is made within %s", volume.Name, cluster.ResyncPeriod))
	}
}

// ShouldDelete implements controller.DeletionGuard, with ShouldProvision's shortcut
// when stopping. A volume does not exist for the driver of another node: deletion
// there would succeed, and leave the volume behind where it is.
func (a *Adapter) ShouldDelete(ctx context.Context, volume *corev1.PersistentVolume) bool {
	return ctx.Err() == nil && a.config.Cluster.Node.Holds(a.config.Cluster.AsCSI(volume)) && !a.deletions.finished(volume)
}

// SupportsBlock implements controller.BlockProvisioner. The driver refuses the
// capability with a better reason than the library has.
func (a *Adapter) SupportsBlock(context.Context) bool { return true }

// detach returns a context with ctx's values that ends with base, not with ctx.
func detach(ctx, base context.Context) (context.Context, context.CancelFunc) {
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(base, func() { cancel(context.Cause(base)) })
	return detached, func() {
		stop()
		cancel(context.Canceled)
	}
}
