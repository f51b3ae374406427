package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

// ErrNotRegistered means that kubelet refused the driver.
var ErrNotRegistered = errors.New("kubelet did not register the driver")

// registrationDrain is short: kubelet's calls do no work.
const registrationDrain = time.Second

// RegistrationConfig of a Registration.
type RegistrationConfig struct {
	// Dir is kubelet's plugins_registry as this process sees it.
	Dir        string
	DriverName string
	// SocketPath of the CSI on the host, for kubelet.
	SocketPath string
}

// Registration registers the driver with kubelet, in place of a node-driver-registrar:
// kubelet watches a directory for sockets and asks each what it is
// (k8s.io/kubelet/pkg/apis/pluginregistration/v1).
type Registration struct {
	registerapi.UnimplementedRegistrationServer
	cfg    RegistrationConfig
	ln     net.Listener
	grpc   *grpc.Server
	refuse chan error
}

// NewRegistration checks the configuration and binds the socket. The CSI socket
// must be served by then: kubelet calls it at once.
func NewRegistration(ctx context.Context, cfg RegistrationConfig) (*Registration, error) {
	if cfg.DriverName == "" || !filepath.IsAbs(cfg.SocketPath) || !filepath.IsAbs(cfg.Dir) {
		return nil, errors.New("registration: a driver name, the directory and kubelet's path of the CSI socket are needed, both absolute")
	}
	ln, err := Listen(ctx, filepath.Join(cfg.Dir, cfg.DriverName+"-reg.sock"))
	if err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	r := &Registration{cfg: cfg, ln: ln, grpc: grpc.NewServer(), refuse: make(chan error, 1)}
	registerapi.RegisterRegistrationServer(r.grpc, r)
	return r, nil
}

// Run serves until ctx ends. It returns ErrNotRegistered when kubelet refuses: the
// process must restart, since kubelet does not ask twice.
func (r *Registration) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx, r.grpc, r.ln, registrationDrain) })
	group.Go(func() error {
		select {
		case err := <-r.refuse:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	return group.Wait()
}

// GetInfo implements registerapi.RegistrationServer.
func (r *Registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type:     registerapi.CSIPlugin,
		Name:     r.cfg.DriverName,
		Endpoint: r.cfg.SocketPath,
		// The version of the plugin API, not of the CSI spec.
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus implements registerapi.RegistrationServer.
func (r *Registration) NotifyRegistrationStatus(ctx context.Context, status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if status.GetPluginRegistered() {
		klog.FromContext(ctx).Info("Kubelet registered the driver", logkeys.Driver, r.cfg.DriverName)
		return &registerapi.RegistrationStatusResponse{}, nil
	}
	select {
	case r.refuse <- fmt.Errorf("%w: %s", ErrNotRegistered, status.GetError()):
	default:
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
