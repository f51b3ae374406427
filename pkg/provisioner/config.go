package provisioner

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/csiclient"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/volumes"
)

// Config of a Provisioner.
type Config struct {
	Client kubernetes.Interface
	// Dynamic is for the sources of volumes, whose APIs may not be installed.
	Dynamic dynamic.Interface
	Driver  *csiclient.Client
	// Metrics of the library; the caller registers them.
	Metrics metrics.Metrics
	// Naming of volumes.
	Naming plan.Naming
	// Options of every volume; Options.Driver is read from Driver for each claim.
	Options plan.Options

	// Journal has the unfinished volumes.
	Journal Journal
	// CleanupLimit is for how long the volume of a deleted claim is followed up that the
	// driver does not answer for, 24h by default.
	CleanupLimit time.Duration

	Settings
	// Node to serve, where each node has a provisioner; zero for the whole cluster.
	// It needs Topology.
	Node plan.Node
	// RaceMinDelay and RaceMaxDelay bound the random delay before Node tries to get a
	// claim that no scheduler places.
	RaceMinDelay, RaceMaxDelay time.Duration

	// CapacityChanged is called after a volume was created or deleted, and after a creation
	// failed, with its class and, if known, where it is. It may be nil.
	CapacityChanged func(class string, affinity *corev1.VolumeNodeAffinity)
}

// Journal says where the journal is. No other provisioner may use its ConfigMaps.
type Journal struct {
	// Namespace and Name of the ConfigMaps, as in package journal.
	Namespace, Name string
	// Former is the name of the ConfigMap of earlier versions, empty for none.
	Former string
	// Leading reports whether this process may work, nil for always.
	Leading func() bool
	// EndDelay is as in package journal, zero for its default.
	EndDelay time.Duration
}

// Settings of a Provisioner, which are the same for every driver.
type Settings struct {
	// Topology of drivers that have it.
	Topology volumes.Topology
	// AnnounceClasses names the storage of each class to the driver at the start, and
	// when the driver has restarted.
	AnnounceClasses bool
	// ProtectionWorkers remove finalizers of sources concurrently.
	ProtectionWorkers int
	// OrphanSweepInterval is the time between searches for stale finalizers. With 0, those
	// of snapshots are not searched for.
	OrphanSweepInterval time.Duration
	// RetryMin and RetryMax bound the exponential backoff of each claim and volume.
	RetryMin, RetryMax time.Duration
	// Workers create volumes, and as many delete them.
	Workers int
	// DrainTimeout bounds how long operations under way may take when the provisioner
	// is asked to stop.
	DrainTimeout time.Duration
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
		return fmt.Errorf("retry interval from %s to %s, must be positive and not decrease", c.RetryMin, c.RetryMax)
	case c.Workers <= 0:
		return fmt.Errorf("%d workers, must be positive", c.Workers)
	case c.Journal.Namespace == "" || c.Journal.Name == "":
		return errors.New("no journal")
	case c.ProtectionWorkers <= 0 || c.OrphanSweepInterval < 0:
		return fmt.Errorf("%d workers for source protection, must be positive, and interval %s, must not be negative", c.ProtectionWorkers, c.OrphanSweepInterval)
	case c.DrainTimeout < 0:
		return fmt.Errorf("drain timeout %s, must not be negative", c.DrainTimeout)
	}
	return c.validateNode()
}

func (c Config) validateNode() error {
	switch {
	case c.Node.IsZero() && len(c.Node.Segment) == 0:
		return nil
	case c.Node.IsZero() || len(c.Node.Segment) == 0:
		return errors.New("a node without name or topology segment")
	case !c.Topology.Enabled || !c.Driver.Capabilities().Topology:
		return errors.New("a single node needs a driver with topology")
	case c.RaceMinDelay <= 0 || c.RaceMaxDelay < c.RaceMinDelay:
		return fmt.Errorf("delay from %s to %s before taking a claim, must be positive and not decrease", c.RaceMinDelay, c.RaceMaxDelay)
	}
	return nil
}
