// Package announce names the storage of every StorageClass to the CSI driver when the
// provisioner starts and when the driver has restarted. A driver that works on its storage
// in the background then continues what its last process left; otherwise it would learn
// of the storage only when a volume is created or deleted there.
package announce

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/workers"
)

// concurrentCalls bounds how many classes the driver is told about at the same time: each
// may make it connect to another server, which may be dead.
const concurrentCalls = 4

// Driver is told with a call that changes nothing, and that every driver may serve.
type Driver interface {
	GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error)
	// Restarted delivers a value after a restart of the driver.
	Restarted() <-chan struct{}
}

// Config of an Announcer.
type Config struct {
	Cluster *cluster.Cluster
	Driver  Driver
	// Options of every volume.
	Options plan.Options
	// Limiter delays the repetition of failed calls, by class.
	Limiter workqueue.TypedRateLimiter[string]
}

// Announcer announces classes.
type Announcer struct {
	config Config
	queue  workqueue.TypedRateLimitingInterface[string] // names of classes
}

// New returns an Announcer. It does nothing until Run.
func New(config Config) *Announcer {
	return &Announcer{config: config, queue: workqueue.NewTypedRateLimitingQueueWithConfig(config.Limiter,
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "announcements"})}
}

// Run announces all classes, and again whenever the driver has restarted, until ctx ends.
// The caches must be filled.
func (a *Announcer) Run(ctx context.Context) {
	defer workers.Start(ctx, a.queue, concurrentCalls, a.process)()
	for {
		a.announceAll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-a.config.Driver.Restarted():
		}
	}
}

func (a *Announcer) announceAll(ctx context.Context) {
	classes, err := a.config.Cluster.Classes(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list StorageClasses")
	}
	for _, class := range classes {
		a.queue.Forget(class.Name)
		a.queue.Add(class.Name)
	}
}

func (a *Announcer) process(ctx context.Context, name string) {
	log := klog.FromContext(ctx).WithValues(logkeys.StorageClass, name)
	err := a.announce(ctx, name)
	switch {
	case err == nil:
		log.V(2).Info("Announced StorageClass to the CSI driver")
	case ctx.Err() != nil:
		return
	case plan.WorthAnnouncingAgain(err):
		log.Info("Failed to announce StorageClass to the CSI driver. Trying again", logkeys.Err, err.Error())
		a.queue.AddRateLimited(name)
		return
	default:
		log.Info("Cannot announce StorageClass to the CSI driver", logkeys.Err, err.Error())
	}
	a.queue.Forget(name)
}

func (a *Announcer) announce(ctx context.Context, name string) error {
	class, err := a.config.Cluster.Class(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	request, err := plan.NewAnnouncement(a.config.Options, class)
	if err != nil {
		return err
	}
	_, err = a.config.Driver.GetCapacity(ctx, request)
	return err
}
