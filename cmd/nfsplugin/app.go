package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/nfs-csi/nfs-csi/pkg/driver"
	"github.com/nfs-csi/nfs-csi/pkg/observe"
	"github.com/nfs-csi/nfs-csi/pkg/rpc"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// App is the whole program.
type App struct {
	cfg    Config
	server *rpc.Server
	// The other parts are nil if the flags do not ask for them.
	shares       *share.Cache
	volumes      *store.Store
	http         *observe.Server
	prober       *rpc.Prober
	registration *rpc.Registration
}

// New builds the parts and binds the sockets, so that errors of the configuration appear
// before anything is served.
func New(ctx context.Context, cfg Config) (*App, error) {
	a := &App{cfg: cfg}
	metrics := prometheus.NewRegistry()
	if err := errors.Join(
		metrics.Register(collectors.NewGoCollector()),
		metrics.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	); err != nil {
		return nil, err
	}
	d, err := a.driver(ctx, metrics)
	if err != nil {
		return nil, err
	}
	a.server, err = rpc.New(ctx, rpc.Config{
		Endpoint: cfg.Endpoint, Register: d.Register, Metrics: metrics, DrainTimeout: cfg.ShutdownTimeout,
	})
	if err != nil {
		return nil, err
	}
	if err := a.observe(metrics); err != nil {
		return nil, err
	}
	if driver.Mode(cfg.Mode).HasNode() && cfg.KubeletRegistrationPath != "" {
		a.registration, err = rpc.NewRegistration(ctx, rpc.RegistrationConfig{
			Dir: cfg.PluginRegistrationDir, DriverName: cfg.DriverName, SocketPath: cfg.KubeletRegistrationPath,
		})
	}
	return a, err
}

func (a *App) driver(ctx context.Context, metrics prometheus.Registerer) (*driver.Driver, error) {
	mounter, err := newMounter()
	if err != nil {
		return nil, err
	}
	cfg := driver.Config{
		Name: a.cfg.DriverName, Version: version, Mode: driver.Mode(a.cfg.Mode), NodeID: a.cfg.NodeID, Mounter: mounter,
	}
	if a.cfg.EnableEphemeral {
		cfg.Ephemeral = &driver.Ephemeral{Servers: a.cfg.EphemeralServers, MountOptions: a.cfg.EphemeralMountOptions}
	}
	sources := driver.Sources{Mounter: mounter}
	if cfg.Mode.HasController() {
		a.shares, err = share.New(ctx, share.Config{
			Mounter: mounter, Dir: a.cfg.WorkingMountDir, IdleTimeout: a.cfg.ShareIdleTimeout,
		})
		if err != nil {
			return nil, err
		}
		a.volumes, err = a.store(ctx, metrics)
		if err != nil {
			return nil, err
		}
		cfg.Volumes, cfg.OwnMounts = a.volumes, a.shares.Dir()
		sources.Shares, sources.Volumes, sources.Snapshots = a.shares, a.volumes, a.volumes
	}
	if err := metrics.Register(driver.NewCollector(sources)); err != nil {
		return nil, err
	}
	return driver.New(cfg)
}

func (a *App) store(ctx context.Context, metrics prometheus.Registerer) (*store.Store, error) {
	onDelete, err := volume.ParseOnDelete(a.cfg.OnDelete)
	if err != nil {
		return nil, fmt.Errorf("--default-ondelete-policy: %w", err)
	}
	mode, err := a.cfg.directoryMode()
	if err != nil {
		return nil, err
	}
	if err := volume.CheckClusterID(a.cfg.ClusterID); err != nil {
		return nil, fmt.Errorf("--cluster-id: %w", err)
	}
	exports, err := parseExports(a.cfg.ListExports)
	if err != nil {
		return nil, fmt.Errorf("--list-exports: %w", err)
	}
	return store.New(ctx, store.Config{
		Exports: exports,
		Shares:  a.shares, MountOptions: a.cfg.MountOptions, ReclaimWorkers: a.cfg.ReclaimWorkers, ReclaimRate: a.cfg.ReclaimRate,
		CopyWorkers: a.cfg.CopyWorkers, OnDelete: onDelete, Mode: mode, ClusterID: a.cfg.ClusterID, Metrics: metrics,
	})
}

// directoryMode returns the mode of the directory of a new volume whose class sets none.
func (c Config) directoryMode() (volume.Mode, error) {
	permissions, err := parseModeFlag(c.MountPermissions)
	if err != nil {
		return 0, fmt.Errorf("--mount-permissions: %w", err)
	}
	mode, err := parseModeFlag(c.DirectoryMode)
	if err == nil && mode == 0 {
		err = fmt.Errorf("%w: mode %q lets nobody use a volume", volume.ErrInvalid, c.DirectoryMode)
	}
	if err != nil {
		return 0, fmt.Errorf("--directory-mode: %w", err)
	}
	return cmp.Or(permissions, mode), nil
}

func parseExports(list []string) ([]volume.Export, error) {
	var exports []volume.Export
	for _, text := range list {
		server, share, ok := strings.Cut(text, ":/")
		if !ok {
			return nil, fmt.Errorf("%q is not server:/share", text)
		}
		export, err := volume.ParseExport(server, "/"+share)
		if err != nil {
			return nil, err
		}
		exports = append(exports, export)
	}
	return exports, nil
}

func (a *App) observe(metrics *prometheus.Registry) (err error) {
	if a.cfg.HTTPEndpoint == "" {
		return nil
	}
	if a.prober, err = rpc.NewProber(a.cfg.Endpoint); err != nil {
		return err
	}
	a.http, err = observe.Listen(observe.Config{
		Addr:     a.cfg.HTTPEndpoint,
		Wait:     true, // volumes are mounted without metrics, too
		Gatherer: metrics,
		Checks:   map[string]observe.Check{"/healthz": a.prober.Check},
	})
	return err
}

// Run serves until ctx ends, lets calls in flight finish, unmounts exports and returns
// nil. Any other end is an error.
func (a *App) Run(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.server.Run(groupCtx) })
	if a.http != nil {
		group.Go(func() error { return a.http.Run(groupCtx) })
	}
	if a.registration != nil {
		group.Go(func() error { return a.registration.Run(groupCtx) })
	}
	return errors.Join(group.Wait(), a.close(context.WithoutCancel(ctx)))
}

// closeTimeout is how long a dead server may delay the end of the process.
const closeTimeout = 5 * time.Second

func (a *App) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	var errs []error
	if a.prober != nil {
		errs = append(errs, a.prober.Close())
	}
	if a.volumes != nil {
		errs = append(errs, a.volumes.Close(ctx))
	}
	if a.shares != nil {
		errs = append(errs, a.shares.Close(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}
