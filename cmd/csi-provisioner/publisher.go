package main

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/capacity"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/csiclient"
)

// newPublisher returns nil without --enable-capacity.
func newPublisher(ctx context.Context, config Config, driver *csiclient.Client, shared informers.SharedInformerFactory) (*capacity.Publisher, error) {
	c := config.Capacity
	if !c.Enabled {
		return nil, nil
	}
	capabilities := driver.Capabilities()
	if !capabilities.Capacity {
		// As with external-provisioner, this is no reason to provision nothing.
		klog.FromContext(ctx).Info("Asking a CSI driver for capacity that does not declare GET_CAPACITY", logkeys.Driver, capabilities.DriverName)
	}
	server, err := config.restConfig()
	if err != nil {
		return nil, err
	}
	server.QPS, server.Burst = c.QPS, c.Burst
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		return nil, fmt.Errorf("API client for capacities: %w", err)
	}
	objects, err := metadata.NewForConfig(metadata.ConfigFor(server))
	if err != nil {
		return nil, fmt.Errorf("API client for capacities: %w", err)
	}
	owners, err := capacity.Owner(ctx, objects, c.Namespace, c.Pod, c.OwnerLevel)
	if err != nil {
		return nil, err
	}
	return capacity.New(capacity.Config{
		Client:       client,
		Informers:    shared,
		Driver:       driver,
		DriverName:   capabilities.DriverName,
		Namespace:    c.Namespace,
		Owners:       owners,
		Topology:     capabilities.Topology && config.Topology.Enabled,
		Node:         config.Node.node(driver),
		Immediate:    c.Immediate,
		PollInterval: c.PollInterval,
		Threads:      c.Threads,
		RetryMin:     config.RetryMin,
		RetryMax:     config.RetryMax,
	})
}

// workers run until lead ends, or until stop ends, which lets operations in progress
// finish.
func workers(lead context.Context, stop context.Context, p *provisioner.Provisioner, publisher *capacity.Publisher) error {
	if publisher == nil {
		return p.Run(lead, stop.Done())
	}
	var publishing sync.WaitGroup
	defer publishing.Wait()
	ctx, end := context.WithCancel(lead)
	defer end()
	defer context.AfterFunc(stop, end)()
	publishing.Go(func() { publisher.Run(ctx) })
	return p.Run(lead, stop.Done())
}
