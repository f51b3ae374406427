package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/announce"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/journal"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/volumes"
)

// abandonGrace is how long abandoned calls may take to return.
const abandonGrace = 2 * time.Second

// cleanupLimit is the default of Config.CleanupLimit.
const cleanupLimit = 24 * time.Hour

// ErrDrainTimeout is wrapped when operations under way were abandoned.
var ErrDrainTimeout = errors.New("operations under way did not finish in time")

// Run provisions until drain is closed or ctx ends, or until the driver is lost.
// Closing drain starts no new operation, lets those under way finish and returns
// nil; the end of ctx abandons them. It can be called once.
func (p *Provisioner) Run(ctx context.Context, drain <-chan struct{}) error {
	defer p.abandon(nil)
	defer context.AfterFunc(ctx, func() { p.abandon(context.Cause(ctx)) })()
	work, stop := context.WithCancel(ctx)
	defer stop()

	broadcaster := record.NewBroadcaster(record.WithContext(p.base))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: p.client.CoreV1().Events(metav1.NamespaceAll)})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: p.cluster.Driver.DriverName})
	entries, err := p.openJournal(work, drain, recorder)
	if entries == nil {
		p.client.Settle()
		broadcaster.Shutdown()
		return err
	}
	idle := p.start(work, entries, broadcaster, recorder)
	var cause error
	select {
	case <-drain:
	case <-ctx.Done():
	case cause = <-p.config.Driver.Lost():
		p.abandon(cause)
	}
	stop()
	if !closedWithin(ctx, idle, p.config.DrainTimeout) {
		late := fmt.Errorf("%w: %s", ErrDrainTimeout, p.config.DrainTimeout)
		p.abandon(late)
		// A write of a PersistentVolume cannot be abandoned, only left behind.
		closedWithin(context.WithoutCancel(ctx), idle, abandonGrace)
		if cause == nil {
			cause = late
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return cause
}

// start returns a channel that is closed when nothing runs any more, which is some
// time after the end of work.
func (p *Provisioner) start(work context.Context, entries *journal.Journal, broadcaster record.EventBroadcaster, recorder record.EventRecorder) <-chan struct{} {
	all := p.newVolumes(entries, recorder)
	all.Resume(work)
	klog.FromContext(work).Info("Starting provisioner", logkeys.Driver, p.cluster.Driver.DriverName, logkeys.Workers, p.config.Workers)
	p.cluster.Informers.StartWithContext(work)

	writing, stopWriting := context.WithCancel(context.WithoutCancel(work))
	var writer, background sync.WaitGroup
	writer.Go(func() { entries.Run(writing) })
	runs := []func(context.Context){p.protection.Run, p.race.Run, all.Run}
	if p.config.AnnounceClasses {
		runs = append(runs, p.announcer().Run)
	}
	for _, run := range runs {
		background.Go(func() {
			p.cluster.Informers.WaitForCacheSync(work.Done())
			run(work)
		})
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		p.adapter.Run(work, all, recorder)
		background.Wait()
		stopWriting()
		writer.Wait()
		p.cluster.Informers.Shutdown()
		p.client.Settle()
		broadcaster.Shutdown()
	}()
	return idle
}

func (p *Provisioner) announcer() *announce.Announcer {
	return announce.New(announce.Config{
		Cluster: p.cluster, Driver: p.config.Driver, Options: p.config.Options, Limiter: backoff[string](p.config),
	})
}

func (p *Provisioner) newVolumes(entries *journal.Journal, events record.EventRecorder) *volumes.Volumes {
	return volumes.New(volumes.Config{
		Base: p.base, Cluster: p.cluster, Driver: p.config.Driver,
		Sources: p.sources, Protection: p.protection, Journal: entries, Events: events, Metrics: p.metrics,
		Options: p.config.Options, Topology: p.config.Topology,
		Retries: p.retries, RetryMax: p.config.RetryMax,
		CleanupLimit: cmp.Or(p.config.CleanupLimit, cleanupLimit),
	})
}

// closedWithin reports whether the channel was closed before the limit and the end of
// ctx.
func closedWithin(ctx context.Context, channel <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-channel:
		return true
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	}
}
