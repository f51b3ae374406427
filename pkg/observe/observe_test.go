package observe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func healthy(context.Context) error { return nil }

func TestListenRefusesBadConfig(t *testing.T) {
	registry := prometheus.NewRegistry()
	const addr = "127.0.0.1:0"
	tests := map[string]Config{
		"no address":           {Gatherer: registry},
		"no gatherer":          {Addr: addr},
		"relative metrics":     {Addr: addr, Gatherer: registry, MetricsPath: "metrics"},
		"relative check":       {Addr: addr, Gatherer: registry, Checks: map[string]Check{"healthz": healthy}},
		"pattern as check":     {Addr: addr, Gatherer: registry, Checks: map[string]Check{"/{x}": healthy}},
		"check under profiles": {Addr: addr, Gatherer: registry, Checks: map[string]Check{"/debug/pprof/x": healthy}},
		"nil check":            {Addr: addr, Gatherer: registry, Checks: map[string]Check{"/healthz": nil}},
		"check is metrics":     {Addr: addr, Gatherer: registry, Checks: map[string]Check{"/metrics": healthy}},
	}
	for name, cfg := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Listen(cfg); !errors.Is(err, ErrConfig) {
				t.Fatalf("Listen() = %v, want ErrConfig", err)
			}
		})
	}
}

func TestListenFailsOnPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, err := Listen(Config{Addr: taken.Addr().String(), Gatherer: prometheus.NewRegistry()}); err == nil {
		t.Fatal("Listen() succeeded on a port in use")
	}
}

func TestServes(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "volumes_total", Help: "Volumes."})
	registry.MustRegister(counter)
	counter.Add(3)
	checks := map[string]Check{
		"/healthz": healthy,
		"/healthz/leader-election": func(context.Context) error {
			return errors.New("lease is stale")
		},
	}
	base := serve(t, Config{Addr: "127.0.0.1:0", MetricsPath: "/m", Gatherer: registry, Checks: checks, Pprof: true})

	tests := []struct {
		path string
		code int
		body string
	}{
		{"/m", http.StatusOK, "volumes_total 3"},
		{"/metrics", http.StatusNotFound, ""},
		{"/healthz", http.StatusOK, "ok\n"},
		{"/healthz/leader-election", http.StatusServiceUnavailable, "lease is stale"},
		{"/debug/pprof/", http.StatusOK, "goroutine"},
		{"/debug/pprof/heap?debug=1", http.StatusOK, "heap profile"},
	}
	for _, test := range tests {
		code, body := get(t, base+test.path)
		if code != test.code || !strings.Contains(body, test.body) {
			t.Errorf("GET %s = %d %q, want %d with %q", test.path, code, body, test.code, test.body)
		}
	}
}

func TestScrapesAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	base := serve(t, Config{Addr: "127.0.0.1:0", Gatherer: registry, Registerer: registry})
	get(t, base+"/metrics")
	_, body := get(t, base+"/metrics")
	for _, line := range []string{`promhttp_metric_handler_requests_total{code="200"} 1`, "promhttp_metric_handler_requests_in_flight 1"} {
		if !strings.Contains(body, line) {
			t.Errorf("the second scrape lacks %q", line)
		}
	}
}

func TestPprofIsOffByDefault(t *testing.T) {
	base := serve(t, Config{Addr: "127.0.0.1:0", Gatherer: prometheus.NewRegistry()})
	if code, _ := get(t, base+"/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles answered %d without being asked for", code)
	}
}

func TestStopLetsRequestsFinish(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	server, err := Listen(Config{
		Addr:     "127.0.0.1:0",
		Gatherer: prometheus.NewRegistry(),
		Checks: map[string]Check{"/healthz": func(context.Context) error {
			close(entered)
			<-release
			return nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()

	answered := make(chan int, 1)
	go func() {
		response, err := http.Get("http://" + server.Addr().String() + "/healthz")
		if err != nil {
			answered <- 0
			return
		}
		response.Body.Close()
		answered <- response.StatusCode
	}()
	<-entered
	cancel()
	// The stop has started once connections are refused; the request is still in flight.
	refused(t, server.Addr().String())
	select {
	case code := <-answered:
		t.Errorf("the request in flight was answered %d by the stop", code)
	case err := <-stopped:
		t.Fatalf("Run() = %v with a request in flight", err)
	default:
	}
	close(release)
	if code := <-answered; code != http.StatusOK {
		t.Errorf("request in flight at the stop was answered %d", code)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run() = %v after a clean stop", err)
	}
	if _, err := net.DialTimeout("tcp", server.Addr().String(), time.Second); err == nil {
		t.Error("still listening after Run returned")
	}
}

// refused waits until connections to the address are refused.
func refused(t *testing.T, addr string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return
		}
		conn.Close()
	}
	t.Fatal("still listening")
}

func TestRunReportsADeadListener(t *testing.T) {
	server, err := Listen(Config{Addr: "127.0.0.1:0", Gatherer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	server.listener.Close()
	if err := server.Run(t.Context()); err == nil {
		t.Error("Run() = nil on a closed listener")
	}
}

func serve(t *testing.T, cfg Config) string {
	t.Helper()
	server, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return "http://" + server.Addr().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
