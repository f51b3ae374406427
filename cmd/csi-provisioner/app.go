package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/capacity"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/observe"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/csiclient"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// App is the whole program.
type App struct {
	config    Config
	naming    plan.Naming
	clients   clients
	election  *election
	telemetry *telemetry
	http      *observe.Server
}

// New checks config and binds the HTTP endpoint.
func New(config Config) (*App, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	naming, err := plan.NewNaming(config.VolumeNamePrefix, config.VolumeNameUUIDLength)
	if err != nil {
		return nil, err
	}
	clients, err := config.clients()
	if err != nil {
		return nil, err
	}
	telemetry, err := newTelemetry()
	if err != nil {
		return nil, err
	}
	app := &App{config: config, naming: naming, clients: clients, telemetry: telemetry}
	if config.LeaderElection.Enabled {
		app.election = newElection(config.LeaderElection, clients.lease)
	}
	if config.httpEndpoint() != "" {
		if app.http, err = observe.Listen(app.observed()); err != nil {
			return nil, err
		}
	}
	return app, nil
}

func (a *App) observed() observe.Config {
	checks := map[string]observe.Check{
		// Answering is enough: restarting this process would not bring back a driver
		// that is down.
		"/healthz": func(context.Context) error { return nil },
	}
	if a.election != nil {
		checks["/healthz/leader-election"] = a.election.check
	}
	return observe.Config{
		Addr:        a.config.httpEndpoint(),
		MetricsPath: a.config.MetricsPath,
		Gatherer:    a.telemetry.gatherer,
		Registerer:  a.telemetry.registry,
		Checks:      checks,
		Pprof:       a.config.Pprof,
	}
}

// Run works until ctx ends, lets calls in flight finish and returns nil. Any other end is
// an error.
func (a *App) Run(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	if a.http != nil {
		klog.FromContext(ctx).Info("Serving metrics and health", logkeys.Address, a.http.Addr().String())
		group.Go(func() error { return a.http.Run(serving) })
	}
	group.Go(func() error {
		// Health is served until the end: a pod that is shutting down is not unhealthy.
		defer stopServing()
		return a.provision(groupCtx)
	})
	return group.Wait()
}

func (a *App) provision(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	driver, err := a.connect(ctx)
	if err != nil && ctx.Err() != nil {
		return nil // stopped while waiting
	}
	if err != nil {
		return err
	}
	defer func() { _ = driver.Close() }()
	name := driver.Capabilities().DriverName
	logger.Info("CSI driver is ready", logkeys.Driver, name, logkeys.Address, a.config.CSIAddress)

	var publisher *capacity.Publisher
	p, err := a.provisioner(driver, func(class string, affinity *corev1.VolumeNodeAffinity) {
		if publisher != nil {
			publisher.Refresh(class, affinity)
		}
	})
	if err != nil {
		return err
	}
	if publisher, err = newPublisher(ctx, a.config, driver, p.Informers()); err != nil {
		return err
	}
	collectors := p.Collectors()
	if publisher != nil {
		collectors = append(collectors, publisher)
	}
	if err := a.telemetry.register(collectors...); err != nil {
		return err
	}
	work := func(lead context.Context) error { return workers(lead, ctx, p, publisher) }
	if a.election != nil {
		return a.election.run(ctx, leaseName(name), work)
	}
	return work(context.WithoutCancel(ctx))
}

// connect waits for the driver. As in the external-provisioner, its metrics depend on
// its name: only a driver that replaced an in-tree plugin has the label for migrated
// volumes.
func (a *App) connect(ctx context.Context) (*csiclient.Client, error) {
	config := csiclient.Config{
		Address:      a.config.CSIAddress,
		Timeout:      a.config.Timeout,
		NodeTopology: a.config.Node.Enabled,
		Metrics:      a.telemetry.calls,
	}
	driver, err := csiclient.Connect(ctx, config)
	if err != nil {
		return nil, err
	}
	name := driver.Capabilities().DriverName
	if plan.NewMigration(name).IsZero() {
		config.Metrics.SetDriverName(name)
		return driver, nil
	}
	_ = driver.Close()
	config.Metrics = a.telemetry.migratedCalls
	config.Metrics.SetDriverName(name)
	return csiclient.Connect(ctx, config)
}

func (a *App) provisioner(driver *csiclient.Client, capacityChanged func(class string, affinity *corev1.VolumeNodeAffinity)) (*provisioner.Provisioner, error) {
	name := driver.Capabilities().DriverName
	options := a.config.Options
	node := a.config.Node.node(driver)
	options.Identity = newIdentity(name, node.Name)
	config := provisioner.Config{
		Client:   a.clients.work,
		Dynamic:  a.clients.dynamic,
		Driver:   driver,
		Metrics:  a.telemetry.library,
		Naming:   a.naming,
		Options:  options,
		Settings: a.config.Settings,
		Journal: provisioner.Journal{
			Namespace: a.config.LeaderElection.namespace(),
			Name:      a.config.Node.journalOf(name),
			Former:    a.config.Node.formerJournalOf(name),
		},
		Node:         node,
		RaceMinDelay: a.config.Node.BaseDelay,
		RaceMaxDelay: a.config.Node.MaxDelay,

		CapacityChanged: capacityChanged,
	}
	if a.election != nil {
		config.Journal.Leading = a.election.leading
	}
	return provisioner.New(config)
}

// newIdentity identifies this process in the volumes that it creates, in the form of the
// external-provisioner; node is empty for the whole cluster. plan.Node finds the volumes
// of its node by it.
func newIdentity(driver, node string) string {
	//nolint:gosec // only distinguishes processes that start at the same time
	number := rand.IntN(10000)
	identity := fmt.Sprintf("%d-%d-%s", time.Now().UnixMilli(), number, driver)
	if node != "" {
		identity += "-" + node
	}
	return identity
}
