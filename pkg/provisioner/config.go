package provisioner

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// resyncPeriod repairs what a missed event left undone.
const resyncPeriod = 15 * time.Minute

// Config is what a Provisioner needs.
type Config struct {
	Client kubernetes.Interface
	Driver *Driver
	// Metrics of the library; the caller registers them.
	Metrics metrics.Metrics
	// Naming of volumes.
	Naming plan.Naming
	// Identity is kept in every volume made, to tell who made it.
	Identity string

	// DefaultFSType, ExtraCreateMetadata and ReadOnlyPublish are as in plan.Options.
	DefaultFSType       string
	ExtraCreateMetadata bool
	ReadOnlyPublish     bool

	// RetryMin and RetryMax bound the exponential back-off of each claim and volume.
	RetryMin, RetryMax time.Duration
	// Workers is how many claims, and how many deletions, are worked on at a time.
	Workers int
	// DrainTimeout is how long operations under way may take to finish when the
	// provisioner is asked to stop.
	DrainTimeout time.Duration
}

// Provisioner provisions with one driver.
type Provisioner struct {
	config    Config
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	classes   storagelisters.StorageClassLister
}

// New checks config.
func New(config Config) (*Provisioner, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("provisioner: %w", err)
	}
	client := config.Client
	factory := informers.NewSharedInformerFactoryWithOptions(client, resyncPeriod, informers.WithTransform(trim))
	return &Provisioner{
		config:    config,
		client:    client,
		informers: factory,
		classes:   factory.Storage().V1().StorageClasses().Lister(),
	}, nil
}

func (c Config) validate() error {
	switch {
	case c.Client == nil:
		return errors.New("no Kubernetes client")
	case c.Driver == nil:
		return errors.New("no CSI driver")
	case c.Naming == plan.Naming{}:
		return errors.New("no volume naming")
	case c.RetryMin <= 0 || c.RetryMax < c.RetryMin:
		return fmt.Errorf("retry interval from %s to %s, must be positive and not shrink", c.RetryMin, c.RetryMax)
	case c.Workers <= 0:
		return fmt.Errorf("%d workers, must be positive", c.Workers)
	case c.DrainTimeout < 0:
		return fmt.Errorf("drain timeout %s, must not be negative", c.DrainTimeout)
	}
	return nil
}
