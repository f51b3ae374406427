package provisioner

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/csiclient"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// resyncPeriod repairs what a missed event left undone.
const resyncPeriod = 15 * time.Minute

// Config is what a Provisioner needs.
type Config struct {
	Client kubernetes.Interface
	// Dynamic is for what volumes are filled from: APIs that may not be there.
	Dynamic dynamic.Interface
	Driver  *csiclient.Client
	// Metrics of the library; the caller registers them.
	Metrics metrics.Metrics
	// Naming of volumes.
	Naming plan.Naming
	// Options of every volume; Options.Driver is read from Driver for each claim.
	Options plan.Options

	// JournalNamespace and JournalName are of the ConfigMap that has the volumes
	// in the making. No other provisioner may use it.
	JournalNamespace, JournalName string
	// ProtectionWorkers is how many finalizers of sources are looked after at a
	// time, OrphanSweepInterval how often those left behind are looked for.
	ProtectionWorkers   int
	OrphanSweepInterval time.Duration

	// Topology of drivers that have one.
	Topology Topology
	// Node to serve, where each node has a provisioner; zero for the whole cluster.
	// It needs Topology.
	Node plan.Node
	// ContestMin and ContestMax bound how long Node waits, for a random part of it,
	// before it takes a claim that no scheduler places.
	ContestMin, ContestMax time.Duration

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
	claims    corelisters.PersistentVolumeClaimLister
	volumes   corelisters.PersistentVolumeLister
	sources   sources
	session   *session
	// retries of claims, by UID, and of volumes, by name.
	retries workqueue.TypedRateLimiter[string]
	// deleted are the names of volumes that were deleted a short while ago.
	deleted    recent
	busy       busy
	unfinished unfinished
	unsaved    unsaved
	metrics    journalMetrics
	// places is nil for a driver without topology, and of a single node.
	places    *places
	migration plan.Migration
	// attachments are nil for a driver that does not attach volumes.
	attachments *attachments
}

// New checks config. It must not run beside other users of Kubernetes clients in
// this process, see newSession.
func New(config Config) (*Provisioner, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("provisioner: %w", err)
	}
	client := config.Client
	factory := informers.NewSharedInformerFactoryWithOptions(client, resyncPeriod, informers.WithTransform(newTrimmer().trim))
	p := &Provisioner{
		config:    config,
		client:    client,
		informers: factory,
		classes:   factory.Storage().V1().StorageClasses().Lister(),
		claims:    factory.Core().V1().PersistentVolumeClaims().Lister(),
		volumes:   factory.Core().V1().PersistentVolumes().Lister(),
		sources:   sources{client: config.Dynamic},
		retries:   backOff[string](config),
		migration: plan.NewMigration(config.Driver.Capabilities().DriverName),
		metrics:   newJournalMetrics(),
	}
	if config.Topology.Enabled && config.Driver.Capabilities().Topology && config.Node.IsZero() {
		p.places = newPlaces(factory)
	}
	if config.Driver.Capabilities().Attach {
		p.attachments = newAttachments(factory)
	}
	var err error
	if p.session, err = newSession(p); err != nil {
		return nil, fmt.Errorf("provisioner: %w", err)
	}
	return p, nil
}

func (c Config) validate() error {
	switch {
	case c.Client == nil:
		return errors.New("no Kubernetes client")
	case c.Dynamic == nil:
		return errors.New("no dynamic Kubernetes client")
	case c.Driver == nil:
		return errors.New("no CSI driver")
	case c.Naming == plan.Naming{}:
		return errors.New("no volume naming")
	case c.RetryMin <= 0 || c.RetryMax < c.RetryMin:
		return fmt.Errorf("retry interval from %s to %s, must be positive and not shrink", c.RetryMin, c.RetryMax)
	case c.Workers <= 0:
		return fmt.Errorf("%d workers, must be positive", c.Workers)
	case c.JournalNamespace == "" || c.JournalName == "":
		return errors.New("no journal")
	case c.ProtectionWorkers <= 0 || c.OrphanSweepInterval <= 0:
		return fmt.Errorf("%d threads and interval %s for protection of sources, must be positive", c.ProtectionWorkers, c.OrphanSweepInterval)
	case c.DrainTimeout < 0:
		return fmt.Errorf("drain timeout %s, must not be negative", c.DrainTimeout)
	}
	return c.validateNode()
}

func (c Config) validateNode() error {
	switch {
	case c.Node.IsZero() && len(c.Node.Segment) == 0:
		return nil
	case !c.Topology.Enabled || !c.Driver.Capabilities().Topology:
		return errors.New("volumes of a single node, without topology that says where they are")
	case c.Node.Name == "" || len(c.Node.Segment) == 0:
		return errors.New("a node without name or topology segment")
	case c.ContestMin <= 0 || c.ContestMax < c.ContestMin:
		return fmt.Errorf("delay from %s to %s before a claim is taken, must be positive and not shrink", c.ContestMin, c.ContestMax)
	}
	return nil
}

// backOff is per item: one volume that keeps failing delays no other.
func backOff[Key comparable](config Config) workqueue.TypedRateLimiter[Key] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[Key](config.RetryMin, config.RetryMax)
}
