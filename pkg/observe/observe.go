// Package observe serves metrics, health checks and, optionally, profiles. It has its own
// mux and takes the registry, so nothing that an imported package registers globally is
// exposed by accident.
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

const (
	defaultMetricsPath = "/metrics"
	pprofPath          = "/debug/pprof/"

	// Probes without a deadline must not pile up.
	checkTimeout      = 10 * time.Second
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	shutdownTimeout   = 5 * time.Second

	// How long to wait for an address that is in use, before the next attempt.
	minPause = time.Second
	maxPause = time.Minute
)

// ErrConfig is wrapped by every error about a Config.
var ErrConfig = errors.New("invalid observe configuration")

// Check reports why the process is unhealthy, or nil.
type Check = func(context.Context) error

// Config of a Server.
type Config struct {
	// Addr is the TCP address to listen on, as for net.Listen.
	Addr string
	// MetricsPath is where Gatherer is served; "/metrics" when empty.
	MetricsPath string
	// Gatherer supplies the metrics. Required.
	Gatherer prometheus.Gatherer
	// Registerer has the metrics about requests for MetricsPath, promhttp_*; may be nil.
	Registerer prometheus.Registerer
	// Checks maps a URL path such as "/healthz" to its check.
	Checks map[string]Check
	// Pprof serves net/http/pprof under /debug/pprof/.
	Pprof bool
	// Wait makes Run wait for an address that is in use, instead of an error of Listen.
	Wait bool
}

// Server is a bound listener with its handlers.
type Server struct {
	addr     string
	listener net.Listener // nil while the address is in use
	http     *http.Server
}

// Listen validates cfg and binds its address, so that a bad address or a port in use is
// an error at the start, unless cfg.Wait is set.
func Listen(cfg Config) (*Server, error) {
	cfg.MetricsPath = cmp.Or(cfg.MetricsPath, defaultMetricsPath)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", cfg.Addr)
	if err != nil && (!cfg.Wait || !errors.Is(err, unix.EADDRINUSE)) {
		return nil, fmt.Errorf("listen for http on %q: %w", cfg.Addr, err)
	}
	return &Server{
		addr:     cfg.Addr,
		listener: listener,
		http: &http.Server{
			Handler:           cfg.handler(),
			ReadHeaderTimeout: readHeaderTimeout,
			IdleTimeout:       idleTimeout,
		},
	}, nil
}

// Addr is the bound address, with the actual port instead of port 0. It is nil if the
// address was in use.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Run serves until ctx ends, then gives requests a short time to finish. It returns nil
// after a clean stop and closes the listener in any case.
func (s *Server) Run(ctx context.Context) error {
	listener := s.listener
	if listener == nil {
		if listener = s.wait(ctx); listener == nil {
			return nil
		}
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve http on %s: %w", s.addr, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := s.http.Shutdown(grace)
	if err != nil {
		// A long profile or a stuck scrape must not delay the end of the process.
		err = errors.Join(err, s.http.Close())
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	if err != nil {
		return fmt.Errorf("stop http on %s: %w", s.addr, err)
	}
	return nil
}

// wait returns a listener when the address is no longer in use, or nil when ctx ends.
func (s *Server) wait(ctx context.Context) net.Listener {
	logger := klog.FromContext(ctx)
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		listener, err := net.Listen("tcp", s.addr)
		if err == nil {
			logger.Info("Serving metrics and health checks", logkeys.Address, s.addr)
			return listener
		}
		logger.Error(err, "Serving no metrics and no health checks: the address cannot be used", logkeys.Address, s.addr, logkeys.RetryIn, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (c Config) validate() error {
	if c.Addr == "" {
		return fmt.Errorf("%w: no address", ErrConfig)
	}
	if c.Gatherer == nil {
		return fmt.Errorf("%w: no metrics gatherer", ErrConfig)
	}
	if err := checkPath(c.MetricsPath); err != nil {
		return err
	}
	for path, check := range c.Checks {
		if err := checkPath(path); err != nil {
			return err
		}
		if path == c.MetricsPath {
			return fmt.Errorf("%w: %s is both a check and the metrics path", ErrConfig, path)
		}
		if check == nil {
			return fmt.Errorf("%w: check %s is nil", ErrConfig, path)
		}
	}
	return nil
}

// checkPath also refuses what http.ServeMux would panic on or read as a pattern.
func checkPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \t{}"):
		return fmt.Errorf("%w: %q is not a URL path", ErrConfig, path)
	case strings.HasPrefix(path, pprofPath):
		return fmt.Errorf("%w: %s is kept for profiles", ErrConfig, path)
	}
	return nil
}

func (c Config) handler() http.Handler {
	mux := http.NewServeMux()
	metrics := promhttp.HandlerFor(c.Gatherer, promhttp.HandlerOpts{
		// One broken collector must not hide all the other metrics.
		ErrorHandling: promhttp.ContinueOnError,
	})
	if c.Registerer != nil {
		metrics = promhttp.InstrumentMetricHandler(c.Registerer, metrics)
	}
	mux.Handle(c.MetricsPath, metrics)
	for path, check := range c.Checks {
		mux.Handle(path, checkHandler(path, check))
	}
	if c.Pprof {
		mux.HandleFunc(pprofPath, pprof.Index)
		mux.HandleFunc(pprofPath+"cmdline", pprof.Cmdline)
		mux.HandleFunc(pprofPath+"profile", pprof.Profile)
		mux.HandleFunc(pprofPath+"symbol", pprof.Symbol)
		mux.HandleFunc(pprofPath+"trace", pprof.Trace)
	}
	return mux
}

func checkHandler(path string, check Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		if err := check(ctx); err != nil {
			klog.FromContext(r.Context()).Error(err, "Health check failed", logkeys.Path, path)
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
}
