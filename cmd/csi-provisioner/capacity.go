package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nfs-csi/nfs-csi/pkg/capacity"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/csiclient"
)

// CapacityConfig has the values of the flags of the same names.
type CapacityConfig struct {
	Enabled      bool
	Threads      int
	PollInterval time.Duration
	OwnerLevel   int
	Immediate    bool
	QPS          float32
	Burst        int
	// Namespace and Pod of this process, from the environment.
	Namespace, Pod string
}

func addCapacityFlags(set *pflag.FlagSet, c *CapacityConfig) {
	set.BoolVar(&c.Enabled, "enable-capacity", false,
		"Publish the free capacity of the driver as CSIStorageCapacity objects, in the namespace in the environment variable NAMESPACE. The driver must support GetCapacity.")
	set.IntVar(&c.Threads, "capacity-threads", 1,
		"How many GetCapacity calls run at the same time.")
	set.DurationVar(&c.PollInterval, "capacity-poll-interval", time.Minute,
		"Interval between GetCapacity calls for the same class and segment.")
	set.IntVar(&c.OwnerLevel, "capacity-ownerref-level", 1,
		"Owner of the CSIStorageCapacity objects: 0 for the pod in the environment variable POD_NAME, 1 for its controller (a StatefulSet or DaemonSet), 2 for the controller of that (a Deployment), -1 for none.")
	set.BoolVar(&c.Immediate, "capacity-for-immediate-binding", false,
		"Publish also for classes with immediate binding, which the scheduler ignores.")
	set.Float32Var(&c.QPS, "kube-api-capacity-qps", 1,
		"Requests per second to the API server for publishing capacities.")
	set.IntVar(&c.Burst, "kube-api-capacity-burst", 5,
		"Burst of requests to the API server for publishing capacities.")
	c.Pod = os.Getenv("POD_NAME")
	c.Namespace = os.Getenv("NAMESPACE")
}

func (c CapacityConfig) validate() error {
	switch {
	case !c.Enabled:
		return nil
	case c.Threads <= 0:
		return fmt.Errorf("--capacity-threads is %d, must be positive", c.Threads)
	case c.PollInterval <= 0:
		return fmt.Errorf("--capacity-poll-interval is %s, must be positive", c.PollInterval)
	case c.OwnerLevel < capacity.NoOwner:
		return fmt.Errorf("--capacity-ownerref-level is %d, must be %d or more", c.OwnerLevel, capacity.NoOwner)
	case c.QPS <= 0 || c.Burst <= 0:
		return fmt.Errorf("--kube-api-capacity-qps is %g and --kube-api-capacity-burst %d, must be positive", c.QPS, c.Burst)
	case c.Namespace == "":
		return errors.New("--enable-capacity needs NAMESPACE in the environment")
	case c.Pod == "" && c.OwnerLevel > capacity.NoOwner:
		return errors.New("--enable-capacity needs POD_NAME in the environment, or --capacity-ownerref-level=-1")
	}
	return nil
}

// publisher is nil without --enable-capacity.
func (a *App) publisher(ctx context.Context, driver *csiclient.Client) (*capacity.Publisher, error) {
	c := a.config.Capacity
	if !c.Enabled {
		return nil, nil
	}
	capabilities := driver.Capabilities()
	if !capabilities.Capacity {
		return nil, fmt.Errorf("--enable-capacity: CSI driver %s does not declare GET_CAPACITY", capabilities.DriverName)
	}
	config, err := a.config.restConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = c.QPS, c.Burst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API client for capacities: %w", err)
	}
	objects, err := metadata.NewForConfig(metadata.ConfigFor(config))
	if err != nil {
		return nil, fmt.Errorf("API client for capacities: %w", err)
	}
	owners, err := capacity.Owner(ctx, objects, c.Namespace, c.Pod, c.OwnerLevel)
	if err != nil {
		return nil, err
	}
	settings := capacity.Config{
		Client:       client,
		Driver:       driver,
		DriverName:   capabilities.DriverName,
		Namespace:    c.Namespace,
		Owners:       owners,
		Topology:     capabilities.Topology && a.config.Features.Topology,
		Node:         a.node(driver),
		Immediate:    c.Immediate,
		PollInterval: c.PollInterval,
		Threads:      c.Threads,
		RetryMin:     a.config.RetryIntervalStart,
		RetryMax:     a.config.RetryIntervalMax,
	}
	publisher, err := capacity.New(settings)
	if err != nil {
		return nil, err
	}
	return publisher, a.telemetry.register(publisher)
}

// workers run until lead ends, or until stop ends, which lets operations in progress
// finish.
func workers(lead context.Context, stop context.Context, p *provisioner.Provisioner, publisher *capacity.Publisher) error {
	if publisher == nil {
		return p.Run(lead, stop.Done())
	}
	publishing, end := context.WithCancel(lead)
	defer end()
	defer context.AfterFunc(stop, end)()
	published := make(chan struct{})
	go func() {
		defer close(published)
		publisher.Run(publishing)
	}()
	err := p.Run(lead, stop.Done())
	end()
	<-published
	return err
}
