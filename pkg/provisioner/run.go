package provisioner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// abandonGrace is how long calls may take to notice that they are abandoned.
const abandonGrace = 2 * time.Second

// ErrDrainTimeout is wrapped when operations under way had to be abandoned.
var ErrDrainTimeout = errors.New("operations under way did not finish in time")

// Run provisions until drain is closed or ctx ends, or until the driver is lost.
// Closing drain starts no new operation, lets those under way finish and returns
// nil; the end of ctx abandons them. It can be called once.
func (p *Provisioner) Run(ctx context.Context, drain <-chan struct{}) error {
	operations, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	work, stop := context.WithCancel(ctx)
	defer stop()

	idle := p.start(work, operations)
	var cause error
	select {
	case <-drain:
	case <-ctx.Done():
	case cause = <-p.config.Driver.Lost():
		abandon(cause)
	}
	stop()
	if !idleWithin(ctx, idle, p.config.DrainTimeout) {
		late := fmt.Errorf("%w: %s", ErrDrainTimeout, p.config.DrainTimeout)
		abandon(late)
		// Saving a PersistentVolume cannot be abandoned, only left behind.
		idleWithin(context.WithoutCancel(ctx), idle, abandonGrace)
		if cause == nil {
			cause = late
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return cause
}

// start returns a channel that is closed when nothing of the provisioner runs
// any longer, which is some time after work has ended.
func (p *Provisioner) start(work, operations context.Context) <-chan struct{} {
	logger := klog.FromContext(work)
	driver := p.config.Driver.Facts().Name
	var workers sync.WaitGroup
	library := controller.NewProvisionController(
		// Events of the last operations are sent after work has ended.
		operations,
		drainingClient{Interface: p.client, base: operations},
		driver,
		&session{Provisioner: p, base: operations},
		p.libraryOptions()...,
	)
	library.ControllerWaitGroup(&workers)
	logger.Info("Provisioning volumes", logDriver, driver, logWorkers, p.config.Workers)
	p.informers.StartWithContext(work)

	idle := make(chan struct{})
	go func() {
		defer close(idle)
		library.Run(work)
		workers.Wait()
		p.informers.Shutdown()
	}()
	return idle
}

// idleWithin tells whether idle was closed before the time was up or ctx ended.
func idleWithin(ctx context.Context, idle <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	}
}

func (p *Provisioner) libraryOptions() []func(*controller.ProvisionController) error {
	core, storage := p.informers.Core().V1(), p.informers.Storage().V1()
	return []func(*controller.ProvisionController) error{
		controller.LeaderElection(false), // the caller's
		controller.AddFinalizer(true),
		controller.FailedProvisionThreshold(0), // no limit
		controller.FailedDeleteThreshold(0),
		controller.RateLimiter(p.backOff()),
		controller.RetryIntervalMax(p.config.RetryMax),
		controller.CreateProvisionedPVLimiter(p.backOff()),
		controller.Threadiness(p.config.Workers),
		controller.ResyncPeriod(resyncPeriod),
		controller.VolumeName(func(claim *corev1.PersistentVolumeClaim) string { return p.config.Naming.Name(claim.UID) }),
		controller.MetricsInstance(p.config.Metrics),
		controller.ClaimsInformer(core.PersistentVolumeClaims().Informer()),
		controller.VolumesInformer(core.PersistentVolumes().Informer()),
		controller.ClassesInformer(storage.StorageClasses().Informer()),
	}
}

// backOff is per item: one volume that keeps failing delays no other.
func (p *Provisioner) backOff() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](p.config.RetryMin, p.config.RetryMax)
}
