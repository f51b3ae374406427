package main

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config is what New needs; the flags that fill it say what each field means.
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
	DefaultFSType        string
	ExtraCreateMetadata  bool
	ReadOnlyPublish      bool

	RetryIntervalStart time.Duration
	RetryIntervalMax   time.Duration
	WorkerThreads      int
	ShutdownTimeout    time.Duration

	LeaderElection LeaderElectionConfig

	HTTPEndpoint string
	MetricsPath  string
	Pprof        bool
}

func (c Config) validate() error {
	switch {
	case c.CSIAddress == "":
		return errors.New("--csi-address is empty")
	case c.Timeout <= 0:
		return fmt.Errorf("--timeout is %s, must be positive", c.Timeout)
	case c.KubeAPIQPS < 0:
		return fmt.Errorf("--kube-api-qps is %g, must not be negative", c.KubeAPIQPS)
	case c.KubeAPIBurst < 0:
		return fmt.Errorf("--kube-api-burst is %d, must not be negative", c.KubeAPIBurst)
	case c.RetryIntervalStart <= 0:
		return fmt.Errorf("--retry-interval-start is %s, must be positive", c.RetryIntervalStart)
	case c.RetryIntervalMax < c.RetryIntervalStart:
		return fmt.Errorf("--retry-interval-max is %s, less than --retry-interval-start", c.RetryIntervalMax)
	case c.WorkerThreads <= 0:
		return fmt.Errorf("--worker-threads is %d, must be positive", c.WorkerThreads)
	case c.ShutdownTimeout < 0:
		return fmt.Errorf("--shutdown-timeout is %s, must not be negative", c.ShutdownTimeout)
	case c.Pprof && c.HTTPEndpoint == "":
		return errors.New("--enable-pprof needs --http-endpoint")
	}
	return c.LeaderElection.validate()
}

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

// clients are for the work and for the Lease. The Lease has its own, so that
// renewing it never waits behind the work's rate limit, and a request that hangs
// does not use up the time there is for another try.
func (c Config) clients() (work, lease kubernetes.Interface, err error) {
	config, err := c.restConfig()
	if err != nil {
		return nil, nil, err
	}
	if work, err = kubernetes.NewForConfig(config); err != nil {
		return nil, nil, fmt.Errorf("API client: %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, 0
	config.Timeout = c.LeaderElection.RenewDeadline / 2
	if lease, err = kubernetes.NewForConfig(config); err != nil {
		return nil, nil, fmt.Errorf("API client for the Lease: %w", err)
	}
	return work, lease, nil
}
