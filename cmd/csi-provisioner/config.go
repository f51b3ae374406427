package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// Config of an App; the flags that set it document each field.
type Config struct {
	CSIAddress string
	Timeout    time.Duration

	Kubeconfig   string
	Master       string
	KubeAPIQPS   float32
	KubeAPIBurst int
	// KubeconfigFallback is used when neither Kubeconfig nor Master is given.
	KubeconfigFallback string

	VolumeNamePrefix     string
	VolumeNameUUIDLength int
	// Options get their Identity when the driver is connected.
	Options plan.Options
	provisioner.Settings

	Capacity CapacityConfig
	Node     NodeConfig

	LeaderElection LeaderElectionConfig

	HTTPEndpoint string
	// MetricsAddress is the deprecated name of HTTPEndpoint.
	MetricsAddress string
	MetricsPath    string
	Pprof          bool
}

func (c Config) validate() error {
	switch {
	case c.CSIAddress == "":
		return errors.New("--csi-address is empty")
	case c.Timeout <= 0:
		return fmt.Errorf("--timeout is %s, must be positive", c.Timeout)
	case c.Workers <= 0:
		return fmt.Errorf("--worker-threads is %d, must be positive", c.Workers)
	case c.ProtectionWorkers <= 0:
		return fmt.Errorf("--cloning-protection-threads is %d, must be positive", c.ProtectionWorkers)
	case c.HTTPEndpoint != "" && c.MetricsAddress != "":
		return errors.New("--http-endpoint and --metrics-address are the same, use only the first")
	case c.DrainTimeout < 0:
		return fmt.Errorf("--shutdown-timeout is %s, must not be negative", c.DrainTimeout)
	}
	if err := c.Capacity.validate(); err != nil {
		return err
	}
	if err := c.Node.validate(c.LeaderElection.Enabled, c.Topology.Enabled); err != nil {
		return err
	}
	return c.LeaderElection.validate()
}

func (c Config) httpEndpoint() string { return cmp.Or(c.HTTPEndpoint, c.MetricsAddress) }

func (c Config) restConfig() (*rest.Config, error) {
	config, err := c.apiServer()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "csi-provisioner/" + version
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	config.QPS, config.Burst = -1, 0
	if c.KubeAPIQPS > 0 {
		config.QPS, config.Burst = c.KubeAPIQPS, c.KubeAPIBurst
		if config.Burst == 0 {
			config.Burst = max(1, int(2*c.KubeAPIQPS))
		}
	}
	return config, nil
}

func (c Config) apiServer() (*rest.Config, error) {
	switch {
	case c.Kubeconfig != "" || c.Master != "":
		return clientcmd.BuildConfigFromFlags(c.Master, c.Kubeconfig)
	case c.KubeconfigFallback != "":
		return clientcmd.BuildConfigFromFlags("", c.KubeconfigFallback)
	default:
		return rest.InClusterConfig()
	}
}

// clients talk to the API server.
type clients struct {
	// work and dynamic are for provisioning.
	work    kubernetes.Interface
	dynamic dynamic.Interface
	// lease has limits of its own: renewals must not queue behind other requests, and a
	// request that hangs must leave time for a retry.
	lease kubernetes.Interface
}

func (c Config) clients() (made clients, err error) {
	config, err := c.restConfig()
	if err != nil {
		return clients{}, err
	}
	if made.work, err = kubernetes.NewForConfig(config); err != nil {
		return clients{}, fmt.Errorf("API client: %w", err)
	}
	if made.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return clients{}, fmt.Errorf("dynamic API client: %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, 0
	config.Timeout = c.LeaderElection.RenewDeadline / 2
	if made.lease, err = kubernetes.NewForConfig(config); err != nil {
		return clients{}, fmt.Errorf("API client for the Lease: %w", err)
	}
	return made, nil
}
