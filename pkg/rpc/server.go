package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

// window is the flow control window, larger than any message.
const window = 1 << 20

// Config of a Server.
type Config struct {
	// Endpoint as for Listen.
	Endpoint string
	// Register adds the services.
	Register func(grpc.ServiceRegistrar)
	// Metrics is the registry for the server's metrics.
	Metrics prometheus.Registerer
	// DrainTimeout is how long calls may take to finish when the server stops.
	DrainTimeout time.Duration
}

// Server of the CSI.
type Server struct {
	cfg  Config
	ln   net.Listener
	grpc *grpc.Server
}

// New checks the configuration and binds the socket. From then on callers wait instead
// of failing.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Register == nil || cfg.Metrics == nil || cfg.DrainTimeout <= 0 {
		return nil, errors.New("rpc: services, metrics and a positive drain timeout are needed")
	}
	durations := newDurations()
	if err := cfg.Metrics.Register(durations); err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	ln, err := Listen(ctx, cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	s := grpc.NewServer(
		// Dynamic windows cost a ping per message and are useless on a local socket.
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.ChainUnaryInterceptor(observe(klog.FromContext(ctx), durations), stripErrors, recoverPanics),
	)
	cfg.Register(s)
	return &Server{cfg: cfg, ln: ln, grpc: s}, nil
}

// Run serves until ctx ends, then lets calls finish within the drain timeout, and
// removes the socket.
func (s *Server) Run(ctx context.Context) error {
	return serve(ctx, s.grpc, s.ln, s.cfg.DrainTimeout)
}

func serve(ctx context.Context, s *grpc.Server, ln net.Listener, drain time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	select {
	case err := <-served:
		return fmt.Errorf("rpc: serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	drained := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(drained)
	}()
	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
		klog.FromContext(ctx).Info("Cancelling calls that did not finish within the drain timeout", logkeys.DrainTimeout, drain)
		s.Stop() // do not wait longer: a call can be stuck in the kernel
	}
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("rpc: serve %s: %w", ln.Addr(), err)
	}
	return nil
}
