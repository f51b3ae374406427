package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
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
	if err := run(t.Context(), []string{"--version"}, &out); err != nil || out.String() != "nfsplugin dev\n" {
		t.Errorf("--version: %q, %v", out.String(), err)
	}
	out.Reset()
	if err := run(t.Context(), []string{"--help"}, &out); err != nil {
		t.Error(err)
	}
	for _, flag := range []string{
		"endpoint", "node-id", "driver-name", "mode", "http-endpoint", "working-mount-dir", "share-idle-timeout",
		"default-ondelete-policy", "mount-permissions", "kubelet-registration-path", "plugin-registration-dir", "version", "logging-format", "v",
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
	cfg := config(t, "--http-endpoint=127.0.0.1:0", "--kubelet-registration-path=/on/the/host/csi.sock", "--plugin-registration-dir="+reg)
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

func get(t *testing.T, app *App, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s%s", app.http.Addr(), path), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s: %s", path, resp.Status, body.String())
	}
	return body.String()
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
	}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	c := parsed.config
	if c.NodeID != "node-1" || c.DriverName != "nfs.csi.k8s.io" || c.MountPermissions != "0750" || c.OnDelete != "retain" {
		t.Errorf("read %+v", c)
	}
	if len(parsed.ignored) != 4 {
		t.Errorf("ignored are %q", parsed.ignored)
	}
	if parsed, err := parseFlags(nil, &bytes.Buffer{}); err != nil || len(parsed.ignored) != 0 || parsed.config.DriverName != "nfs.csi.internal" {
		t.Errorf("with no flags: %+v, %v", parsed, err)
	}
}
