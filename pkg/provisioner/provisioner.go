// Package provisioner provisions the volumes of PersistentVolumeClaims with any CSI
// driver that listens on a unix socket. It configures and runs the packages below it:
// adapter receives claims and PersistentVolumes from
// sig-storage-lib-external-provisioner, volumes creates and deletes volumes, sources
// protects what they are filled from, claimrace assigns claims to nodes, announce names
// the storage of classes to the driver, cluster reads the Kubernetes API, csiclient calls
// the driver.
package provisioner

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/util/workqueue"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/adapter"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/claimrace"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/events"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/sources"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/volumes"
)

// Provisioner provisions with one driver.
type Provisioner struct {
	config     Config
	client     *events.Client
	cluster    *cluster.Cluster
	sources    sources.Reader
	protection *sources.Protection
	race       *claimrace.Race
	adapter    *adapter.Adapter
	metrics    *volumes.Metrics
	// retries of claims by UID, and of volumes by name.
	retries workqueue.TypedRateLimiter[string]
	// base bounds the lifetime of operations, which abandon ends.
	base    context.Context
	abandon context.CancelCauseFunc
}

// New validates config. It must not run beside other users of Kubernetes clients in
// this process, see adapter.New.
func New(config Config) (*Provisioner, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("provisioner: %w", err)
	}
	capabilities := config.Driver.Capabilities()
	config.Topology.Enabled = config.Topology.Enabled && capabilities.Topology
	p := &Provisioner{
		config: config,
		client: events.NewClient(config.Client),
		cluster: cluster.New(cluster.Config{
			Client: config.Client, Driver: capabilities, Node: config.Node,
			Topology: config.Topology.Enabled && config.Node.IsZero(),
		}),
		sources: sources.Reader{Client: config.Dynamic},
		metrics: volumes.NewMetrics(),
		retries: backoff[string](config),
	}
	p.base, p.abandon = context.WithCancelCause(context.Background())
	options := config.Options
	options.Driver, options.ExtraCreateMetadata = capabilities, false // the name of the volume is not decided
	p.race = claimrace.New(claimrace.Config{
		Cluster: p.cluster, Driver: config.Driver, Options: options,
		MinDelay: config.RaceMinDelay, MaxDelay: config.RaceMaxDelay,
	})
	if err := p.handleEvents(); err != nil {
		return nil, fmt.Errorf("provisioner: %w", err)
	}
	return p, nil
}

// handleEvents sets up what adds handlers and indexes to the informers.
func (p *Provisioner) handleEvents() (err error) {
	config := p.config
	if p.protection, err = sources.NewProtection(sources.ProtectionConfig{
		Sources: p.sources, Cluster: p.cluster, Limiter: backoff[plan.Origin](config),
		Workers: config.ProtectionWorkers, SweepInterval: config.OrphanSweepInterval,
	}); err != nil {
		return err
	}
	p.adapter, err = adapter.New(adapter.Config{
		Base: p.base, Client: p.client, Cluster: p.cluster, Race: p.race, Naming: config.Naming, Metrics: config.Metrics,
		Retries: p.retries, RetryMin: config.RetryMin, RetryMax: config.RetryMax, Workers: config.Workers,
		CapacityChanged: config.CapacityChanged,
	})
	return err
}

// Collectors are the provisioner's own metrics; the caller registers them.
func (p *Provisioner) Collectors() []prometheus.Collector { return p.metrics.Collectors() }

// Informers are the provisioner's caches. They take handlers until Run, which starts them.
func (p *Provisioner) Informers() informers.SharedInformerFactory { return p.cluster.Informers }

// backoff is per item: one volume that keeps failing delays no other.
func backoff[Key comparable](config Config) workqueue.TypedRateLimiter[Key] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[Key](config.RetryMin, config.RetryMax)
}
