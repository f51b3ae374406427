package capacity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// Driver reports its capacity.
type Driver interface {
	GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error)
}

// Config of a Publisher.
type Config struct {
	// Client should have its own rate limit, so that publishing does not slow
	// provisioning.
	Client kubernetes.Interface
	// Informers of classes and nodes, which the caller starts after New; they are shared
	// with others, so that each kind is watched once.
	Informers informers.SharedInformerFactory
	Driver    Driver
	// DriverName is the name in a StorageClass's provisioner.
	DriverName string
	// Namespace of the objects.
	Namespace string
	// Owners of the objects, which are garbage-collected with them; may be empty.
	Owners []metav1.OwnerReference

	// Topology publishes an object for each segment that a node is in, instead of
	// one for the whole cluster.
	Topology bool
	// Node that the driver serves, zero for the whole cluster.
	Node plan.Node
	// Immediate also publishes for classes whose claims are bound immediately.
	Immediate bool

	// PollInterval is the time between calls for the same object.
	PollInterval time.Duration
	// Threads is the number of concurrent calls.
	Threads int
	// RetryMin and RetryMax bound the exponential backoff of each object.
	RetryMin, RetryMax time.Duration
}

// Publisher keeps the CSIStorageCapacity objects of one driver up to date.
type Publisher struct {
	config  Config
	manager string

	own      informers.SharedInformerFactory
	classes  storagelisters.StorageClassLister
	objects  storagelisters.CSIStorageCapacityNamespaceLister
	byTarget cache.Indexer
	segments func() ([]plan.Segment, error)
	// synced are those of Config.Informers.
	synced []cache.InformerSynced

	queue   workqueue.TypedRateLimitingInterface[string]
	changed chan struct{}

	mu sync.Mutex
	// desired is zero until it is known.
	desired targets
}

// New validates config.
func New(config Config) (*Publisher, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}
	p := &Publisher{
		config:  config,
		manager: managerOf(config.Node.Name),
		changed: make(chan struct{}, 1),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](config.RetryMin, config.RetryMax),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "csistoragecapacity"}),
	}
	p.own = informers.NewSharedInformerFactoryWithOptions(config.Client, 0,
		informers.WithNamespace(config.Namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = labels.Set{driverLabel: config.DriverName, managedByLabel: p.manager}.String()
		}))
	p.classes = config.Informers.Storage().V1().StorageClasses().Lister()
	p.objects = p.own.Storage().V1().CSIStorageCapacities().Lister().CSIStorageCapacities(config.Namespace)
	p.byTarget = p.own.Storage().V1().CSIStorageCapacities().Informer().GetIndexer()
	p.segments = p.segmentLister()
	return p, p.watch()
}

func (c Config) validate() error {
	switch {
	case c.Client == nil:
		return errors.New("no Kubernetes client")
	case c.Informers == nil:
		return errors.New("no informers")
	case c.Driver == nil || c.DriverName == "":
		return errors.New("no CSI driver")
	case c.Namespace == "":
		return errors.New("no namespace for the objects")
	case c.PollInterval <= 0:
		return fmt.Errorf("poll interval %s, must be positive", c.PollInterval)
	case c.Threads <= 0:
		return fmt.Errorf("%d threads, must be positive", c.Threads)
	case c.RetryMin <= 0 || c.RetryMax < c.RetryMin:
		return fmt.Errorf("retry interval from %s to %s, must be positive and not decrease", c.RetryMin, c.RetryMax)
	}
	return nil
}
