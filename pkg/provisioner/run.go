package provisioner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/journal"
)

// abandonGrace is how long calls may take to notice that they are abandoned.
const abandonGrace = 2 * time.Second

// ErrDrainTimeout is wrapped when operations under way had to be abandoned.
var ErrDrainTimeout = errors.New("operations under way did not finish in time")

// Run provisions until drain is closed or ctx ends, or until the driver is lost.
// Closing drain starts no new operation, lets those under way finish and returns
// nil; the end of ctx abandons them. It can be called once.
func (p *Provisioner) Run(ctx context.Context, drain <-chan struct{}) error {
	abandon := p.session.abandon
	defer abandon(nil)
	defer context.AfterFunc(ctx, func() { abandon(context.Cause(ctx)) })()
	work, stop := context.WithCancel(ctx)
	defer stop()

	notes, err := p.openJournal(work, drain)
	if notes == nil {
		return err
	}
	idle := p.session.start(work, notes)
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

// openJournal tries until the API server answers. It returns neither when asked to
// stop before that.
func (p *Provisioner) openJournal(ctx context.Context, drain <-chan struct{}) (*journal.Journal, error) {
	config := journal.Config{Client: p.client.CoreV1().ConfigMaps(p.config.JournalNamespace), Name: p.config.JournalName}
	for {
		notes, err := journal.Open(ctx, config)
		if err == nil {
			return notes, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		delay := p.retries.When(config.Name)
		klog.FromContext(ctx).Error(err, "Will be tried again", "in", delay)
		select {
		case <-drain:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(delay):
		}
	}
}

// start returns a channel that is closed when nothing of the provisioner runs
// any longer, which is some time after work has ended.
func (s *session) start(work context.Context, notes *journal.Journal) <-chan struct{} {
	s.journal = notes
	s.resume(work)
	events := record.NewBroadcaster(record.WithContext(s.base))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.client.CoreV1().Events(metav1.NamespaceAll)})
	driver := s.config.Driver.Capabilities().DriverName
	s.events = events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: driver})
	var workers sync.WaitGroup
	s.library.ControllerWaitGroup(&workers)
	klog.FromContext(work).Info("Provisioning volumes", logDriver, driver, logWorkers, s.config.Workers)
	s.informers.StartWithContext(work)

	noting, stopNoting := context.WithCancel(context.WithoutCancel(work))
	var noted sync.WaitGroup
	noted.Go(func() { notes.Run(noting) })
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		beside := s.besides(work)
		s.library.Run(work)
		workers.Wait()
		beside.Wait()
		stopNoting()
		noted.Wait()
		s.informers.Shutdown()
		events.Shutdown()
	}()
	return idle
}

// besides runs what goes on beside the library's queues, once the caches are there.
func (s *session) besides(work context.Context) *sync.WaitGroup {
	var group sync.WaitGroup
	group.Go(func() {
		<-work.Done()
		s.protection.queue.ShutDown()
	})
	group.Go(func() {
		for _, synced := range s.informers.WaitForCacheSync(work.Done()) {
			if !synced {
				return
			}
		}
		for range s.config.ProtectionWorkers {
			group.Go(func() { s.protection.work(work) })
		}
		if s.contest != nil {
			group.Go(func() { s.contest.run(work) })
		}
		group.Go(func() {
			s.protection.sweep(work, s.config.OrphanSweepInterval, s.config.Driver.Capabilities().Snapshots)
		})
		s.followUp(work)
	})
	return &group
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

func (p *Provisioner) libraryOptions(claims cache.SharedIndexInformer) []func(*controller.ProvisionController) error {
	core, storage := p.informers.Core().V1(), p.informers.Storage().V1()
	return []func(*controller.ProvisionController) error{
		controller.LeaderElection(false), // the caller's
		controller.AdditionalProvisionerNames(p.migration.Names()),
		controller.AddFinalizer(true),
		controller.FailedProvisionThreshold(0), // no limit
		controller.FailedDeleteThreshold(0),
		controller.RateLimiter(p.retries),
		controller.RetryIntervalMax(p.config.RetryMax),
		controller.CreateProvisionedPVLimiter(backOff[string](p.config)),
		controller.Threadiness(p.config.Workers),
		controller.ResyncPeriod(resyncPeriod),
		controller.VolumeName(func(claim *corev1.PersistentVolumeClaim) string { return p.config.Naming.Name(claim.UID) }),
		controller.MetricsInstance(p.config.Metrics),
		controller.ClaimsInformer(claims),
		controller.VolumesInformer(core.PersistentVolumes().Informer()),
		controller.ClassesInformer(storage.StorageClasses().Informer()),
	}
}
