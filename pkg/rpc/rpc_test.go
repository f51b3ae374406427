package rpc

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestSocketPath(t *testing.T) {
	for in, want := range map[string]string{
		"unix:///run/csi/socket": "/run/csi/socket",
		"unix:/run/csi/socket":   "/run/csi/socket",
		"/run/csi/socket":        "/run/csi/socket",
		"unix://run/csi/socket":  "",
		"tcp://0.0.0.0:1":        "",
		"socket":                 "",
		"":                       "",
	} {
		if got, err := socketPath(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if _, err := Listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a socket that is served was taken over: %v", err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // as if the process had died
	ln.Close()
	ln, err = Listen(t.Context(), path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	ln.Close()

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), file); err == nil {
		t.Error("a file was treated as a stale socket")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file is now %q, %v", b, err)
	}
}

// service implements Probe and GetPluginInfo with functions of the test.
type service struct {
	csi.UnimplementedIdentityServer
	probe func(context.Context) (*csi.ProbeResponse, error)
}

func (s *service) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return s.probe(ctx)
}

func (s *service) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	panic("a bug")
}

type controller struct {
	csi.UnimplementedControllerServer
}

type running struct {
	conn    *grpc.ClientConn
	prober  *Prober
	metrics *prometheus.Registry
	stop    context.CancelFunc
	ended   chan error
	socket  string
}

func start(t *testing.T, ctx context.Context, drain time.Duration, s *service) *running { //nolint:revive // ctx carries the logger
	t.Helper()
	r := &running{metrics: prometheus.NewRegistry(), ended: make(chan error, 1), socket: filepath.Join(t.TempDir(), "csi.sock")}
	ctx, r.stop = context.WithCancel(ctx)
	server, err := New(ctx, Config{
		Endpoint: "unix://" + r.socket, Metrics: r.metrics, DrainTimeout: drain,
		Register: func(g grpc.ServiceRegistrar) {
			csi.RegisterIdentityServer(g, s)
			csi.RegisterControllerServer(g, &controller{})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- server.Run(ctx) }()
	r.conn = dial(t, r.socket)
	if r.prober, err = NewProber("unix://" + r.socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(); r.prober.Close() })
	return r
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func ready(yes bool) func(context.Context) (*csi.ProbeResponse, error) {
	return func(context.Context) (*csi.ProbeResponse, error) {
		return &csi.ProbeResponse{Ready: wrapperspb.Bool(yes)}, nil
	}
}

func TestCallsAreLoggedAndCounted(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(6)))
	r := start(t, klog.NewContext(t.Context(), logger), time.Second, &service{probe: ready(true)})
	if err := r.prober.Check(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := csi.NewIdentityClient(r.conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if status.Code(err) != codes.Internal {
		t.Errorf("a panic became %v, want INTERNAL", err)
	}
	_, err = csi.NewControllerClient(r.conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{
		VolumeId: "vol-7", Secrets: map[string]string{"password": "hunter2"},
	})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
	families, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			got[f.GetName()+" "+strings.Join(labels, " ")] = m.GetHistogram().GetSampleCount()
		}
	}
	for _, want := range []string{"OK Probe", "Internal GetPluginInfo", "Unimplemented DeleteVolume"} {
		if got["nfsplugin_rpc_duration_seconds "+want] != 1 {
			t.Errorf("%s is not counted once: %v", want, got)
		}
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	logs := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	for _, want := range []string{"vol-7", "***stripped***", "a bug", "Unimplemented"} {
		if !strings.Contains(logs, want) {
			t.Errorf("the log lacks %q:\n%s", want, logs)
		}
	}
	if strings.Contains(logs, "hunter2") {
		t.Error("a secret is in the log")
	}
}

func TestProbeCheck(t *testing.T) {
	r := start(t, t.Context(), time.Second, &service{probe: ready(false)})
	if err := r.prober.Check(t.Context()); err == nil {
		t.Error("a driver that is not ready passes")
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := r.prober.Check(ctx); err == nil {
		t.Error("a driver that is gone passes")
	}
}

func TestStopLetsCallsFinish(t *testing.T) {
	began, finish := make(chan struct{}), make(chan struct{})
	r := start(t, t.Context(), time.Minute, &service{probe: func(context.Context) (*csi.ProbeResponse, error) {
		close(began)
		<-finish
		return &csi.ProbeResponse{}, nil
	}})
	called := make(chan error, 1)
	go func() { called <- r.prober.Check(context.Background()) }()
	<-began
	r.stop()
	select {
	case err := <-r.ended:
		t.Fatalf("ended with a call in flight: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if err := <-called; err != nil {
		t.Errorf("the call: %v", err)
	}
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestStopIsBounded(t *testing.T) {
	began, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	r := start(t, t.Context(), 20*time.Millisecond, &service{probe: func(context.Context) (*csi.ProbeResponse, error) {
		close(began)
		<-never // like a system call, which ignores contexts
		return &csi.ProbeResponse{}, nil
	}})
	go r.prober.Check(context.Background()) //nolint:errcheck // it is cut off
	<-began
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	register := func(grpc.ServiceRegistrar) {}
	for name, c := range map[string]Config{
		"no services": {Endpoint: "/tmp/x", Metrics: prometheus.NewRegistry(), DrainTimeout: 1},
		"no metrics":  {Endpoint: "/tmp/x", Register: register, DrainTimeout: 1},
		"no drain":    {Endpoint: "/tmp/x", Register: register, Metrics: prometheus.NewRegistry()},
		"no socket":   {Endpoint: "tcp://x", Register: register, Metrics: prometheus.NewRegistry(), DrainTimeout: 1},
	} {
		if _, err := New(t.Context(), c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestRegistration(t *testing.T) {
	dir := t.TempDir()
	cfg := RegistrationConfig{Dir: dir, DriverName: "nfs.csi.internal", SocketPath: "/var/lib/kubelet/plugins/nfs.csi.internal/csi.sock"}
	for name, refusal := range map[string]string{"accepted": "", "refused": "no such version"} {
		r, err := NewRegistration(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()

		socket := filepath.Join(dir, "nfs.csi.internal-reg.sock")
		kubelet := registerapi.NewRegistrationClient(dial(t, socket))
		info, err := kubelet.GetInfo(t.Context(), &registerapi.InfoRequest{})
		if err != nil || info.GetType() != registerapi.CSIPlugin || info.GetName() != cfg.DriverName ||
			info.GetEndpoint() != cfg.SocketPath || strings.Join(info.GetSupportedVersions(), " ") != "1.0.0" {
			t.Errorf("%s: info %v, %v", name, info, err)
		}
		_, err = kubelet.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: refusal == "", Error: refusal})
		if err != nil {
			t.Error(err)
		}
		if refusal == "" {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if err := <-ended; !errors.Is(err, ErrNotRegistered) || !strings.Contains(err.Error(), refusal) {
			t.Errorf("%s: ended with %v, want ErrNotRegistered and kubelet's reason", name, err)
		}
		cancel()
		if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the socket is left behind: %v", name, err)
		}
	}
	for _, bad := range []RegistrationConfig{{Dir: dir, DriverName: "n"}, {Dir: dir, SocketPath: "/s"}, {DriverName: "n", SocketPath: "/s"}} {
		if _, err := NewRegistration(t.Context(), bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
