package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func config(t *testing.T, args ...string) Config {
	t.Helper()
	dir := t.TempDir()
	parsed, err := parseFlags(append([]string{
		"--endpoint=unix://" + dir + "/csi.sock", "--working-mount-dir=" + dir + "/mounts", "--node-id=node-1",
	}, args...), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	return parsed.config
}

func TestVersionAndHelp(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--version"}, &out); err != nil || out.String() != "nfsplugin dev, commit unknown of unknown\n" {
		t.Errorf("--version: %q, %v", out.String(), err)
	}
	out.Reset()
	if err := run(t.Context(), []string{"--help"}, &out); err != nil {
		t.Error(err)
	}
	for _, flag := range []string{
		"endpoint", "node-id", "driver-name", "mode", "http-endpoint", "working-mount-dir", "share-idle-timeout",
		"default-ondelete-policy", "mount-permissions", "directory-mode", "kubelet-registration-path", "plugin-registration-dir", "version", "logging-format", "v",
		"reclaim-rate", "cluster-id", "enable-ephemeral", "ephemeral-servers", "ephemeral-mount-options",
	} {
		if !strings.Contains(out.String(), "--"+flag) {
			t.Errorf("--help lacks --%s", flag)
		}
	}
}

func TestBadConfiguration(t *testing.T) {
	for name, args := range map[string][]string{
		"argument":   {"serve"},
		"flag":       {"--no-such-flag"},
		"services":   {"--mode=both"},
		"node ID":    {"--mode=node", "--node-id="},
		"endpoint":   {"--endpoint=tcp://:1"},
		"http":       {"--http-endpoint=nonsense"},
		"idle":       {"--share-idle-timeout=0s"},
		"reclaim":    {"--reclaim-workers=0"},
		"rate":       {"--reclaim-rate=-1"},
		"ephemeral":  {"--enable-ephemeral"},
		"lists":      {"--list-exports=nfs.test"},
		"lists of":   {"--list-exports=nfs.test:/a/.."},
		"mount dir":  {"--working-mount-dir=relative"},
		"shutdown":   {"--shutdown-timeout=0s"},
		"kubelet":    {"--kubelet-registration-path=relative"},
		"policy":     {"--default-ondelete-policy=keep"},
		"mode":       {"--mount-permissions=0999"},
		"decimal":    {"--mount-permissions=511"},
		"no mode":    {"--directory-mode=0"},
		"cluster":    {"--cluster-id=$(CLUSTER_ID)"},
		"no reg dir": {"--kubelet-registration-path=/csi.sock", "--plugin-registration-dir=/does/not/exist"},
	} {
		dir := t.TempDir()
		base := []string{"--endpoint=unix://" + dir + "/csi.sock", "--working-mount-dir=" + dir + "/mounts", "--node-id=node-1"}
		if err := run(t.Context(), append(base, args...), &bytes.Buffer{}); err == nil {
			t.Errorf("%s: %q was taken", name, args)
		}
	}
}

// The node plugin as seen by kubelet: the registration names the socket, health and
// metrics are served, and no socket is left after a stop.
func TestApp(t *testing.T) {
	reg := t.TempDir()
	cfg := config(t, "--http-endpoint=[127.0.0.1]:0", "--kubelet-registration-path=/on/the/host/csi.sock", "--plugin-registration-dir="+reg)
	app, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx) }()

	conn, err := grpc.NewClient(cfg.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "nfs.csi.internal" || info.GetVendorVersion() != version {
		t.Errorf("info %v, %v", info, err)
	}
	for path, want := range map[string]string{"/healthz": "", "/metrics": `nfsplugin_rpc_duration_seconds_count{code="OK",method="GetPluginInfo"} 1`} {
		if body := get(t, app, path); !strings.Contains(body, want) {
			t.Errorf("%s lacks %q:\n%s", path, want, body)
		}
	}
	if _, err := os.Stat(filepath.Join(reg, "nfs.csi.internal-reg.sock")); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(reg); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if _, err := os.Stat(strings.TrimPrefix(cfg.Endpoint, "unix://")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// Another process has the port: calls are served without metrics, and those are served
// when it is free again.
func TestAppWhosePortIsInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, freed := range []bool{false, true} {
		cfg := config(t, "--mode=controller", "--http-endpoint="+other.Addr().String())
		app, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- app.Run(ctx) }()
		conn, err := grpc.NewClient(cfg.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		probe := func() error { return run(t.Context(), []string{"--probe", "--endpoint=" + cfg.Endpoint}, io.Discard) }
		if _, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}); err != nil {
			t.Error(err)
		}
		if err := probe(); err != nil {
			t.Errorf("--probe: %v", err)
		}
		if freed {
			if err := other.Close(); err != nil {
				t.Error(err)
			}
			mustServe(t, other.Addr(), "/metrics", "nfsplugin_rpc_duration_seconds_count")
		}
		stop()
		if err := errors.Join(<-ended, conn.Close()); err != nil {
			t.Error(err)
		}
		if probe() == nil {
			t.Error("--probe succeeds without a process that serves")
		}
	}
}

// mustServe waits until the body is served.
func mustServe(t *testing.T, from net.Addr, path, want string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		body, err := getFrom(t.Context(), from, path)
		if err == nil && strings.Contains(body, want) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: %v, %q", path, err, body)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(t *testing.T, app *App, path string) string {
	t.Helper()
	body, err := getFrom(t.Context(), app.http.Addr(), path)
	if err != nil {
		t.Error(err)
	}
	return body
}

func getFrom(ctx context.Context, from net.Addr, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s%s", from, path), nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return string(body), errors.Join(err, resp.Body.Close())
}

func TestModesOpenOnlyWhatTheyNeed(t *testing.T) {
	controller, err := New(t.Context(), config(t, "--mode=controller", "--node-id=", "--kubelet-registration-path=/on/the/host/csi.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if controller.volumes == nil || controller.registration != nil || controller.http != nil {
		t.Errorf("the controller has %+v", controller)
	}
	node, err := New(t.Context(), config(t, "--mode=node"))
	if err != nil {
		t.Fatal(err)
	}
	if node.volumes != nil || node.shares != nil || node.registration != nil {
		t.Errorf("the node has %+v", node)
	}
	for _, a := range []*App{controller, node} {
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.Run(stopped); err != nil {
			t.Error(err)
		}
	}
}

// A manifest of csi-driver-nfs with all of its flags.
func TestPredecessorsFlags(t *testing.T) {
	parsed, err := parseFlags([]string{
		"--endpoint=unix:///csi/csi.sock", "--nodeid=node-1", "--mount-permissions=0750", "--drivername=nfs.csi.k8s.io",
		"--working-mount-dir=/tmp", "--default-ondelete-policy=retain", "--vol-stats-cache-expire-in-minutes=0",
		"--remove-archived-volume-path=false", "--use-tar-command-in-snapshot", "--enable-snapshot-compression=false",
		"--logtostderr", "--stderrthreshold=INFO",
	}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	c := parsed.config
	if c.NodeID != "node-1" || c.DriverName != "nfs.csi.k8s.io" || c.MountPermissions != "0750" || c.OnDelete != "retain" {
		t.Errorf("read %+v", c)
	}
	if len(parsed.ignored) != 6 {
		t.Errorf("ignored are %q", parsed.ignored)
	}
	if parsed, err := parseFlags(nil, &bytes.Buffer{}); err != nil || len(parsed.ignored) != 0 || parsed.config.DriverName != "nfs.csi.internal" {
		t.Errorf("with no flags: %+v, %v", parsed, err)
	}
}

// Package flag, which csi-driver-nfs uses, accepts flags with one dash.
func TestFlagsWithOneDash(t *testing.T) {
	parsed, err := parseFlags([]string{"-drivername=nfs.csi.k8s.io", "-nodeid", "node-1", "-logtostderr", "-vmodule=a=4", "-v=5"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if c := parsed.config; c.NodeID != "node-1" || c.DriverName != "nfs.csi.k8s.io" || parsed.logging.Verbosity != 5 || len(parsed.logging.VModule) != 1 {
		t.Errorf("read %+v, %+v", c, parsed.logging)
	}
	if !slices.Equal(parsed.ignored, []string{"logtostderr"}) {
		t.Errorf("ignored are %q", parsed.ignored)
	}
	if _, err := parseFlags([]string{"-nosuchflag"}, &bytes.Buffer{}); err == nil {
		t.Error("an unknown flag was accepted")
	}
}

// Every flag of klog is known, and none that is ignored changes where logs go.
func TestKlogFlags(t *testing.T) {
	var args []string
	own := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(own)
	own.VisitAll(func(f *flag.Flag) { args = append(args, "--"+f.Name+"="+cmp.Or(f.DefValue, "x=1")) })
	if len(args) < 10 {
		t.Fatalf("klog has the flags %q", args)
	}
	if _, err := parseFlags(args, &bytes.Buffer{}); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	if _, err := parseFlags([]string{"--logtostderr=false", "--log_dir=" + dir}, &bytes.Buffer{}); err != nil {
		t.Error(err)
	}
	if got := own.Lookup("logtostderr").Value.String(); got != "true" {
		t.Errorf("logtostderr is %s", got)
	}
}

func TestDirectoryMode(t *testing.T) {
	for args, want := range map[string]volume.Mode{
		"": 0o777, "--mount-permissions=0": 0o777, "--mount-permissions=0750": 0o750, "--directory-mode=0755": 0o755,
		"--directory-mode=0755 --mount-permissions=0": 0o755, "--directory-mode=0755 --mount-permissions=0770": 0o770,
		"--mount-permissions=02770": 0o2770,
	} {
		got, err := config(t, strings.Fields(args)...).directoryMode()
		if err != nil || got != want {
			t.Errorf("%s: mode %s, %v, want %s", args, got, err, want)
		}
	}
}
