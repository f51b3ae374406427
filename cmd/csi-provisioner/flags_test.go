package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/volumes"
)

func TestDefaults(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	parsed, err := parseFlags(nil, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		CSIAddress:           "/run/csi/socket",
		Timeout:              time.Minute,
		VolumeNamePrefix:     "pvc",
		VolumeNameUUIDLength: -1,
		Capacity:             CapacityConfig{Threads: 1, PollInterval: time.Minute, OwnerLevel: 1, QPS: 1, Burst: 5},
		Node:                 NodeConfig{Immediate: true, BaseDelay: 20 * time.Second, MaxDelay: time.Minute},

		Options: plan.Options{PreventModeConversion: true, AttributesClasses: true},
		Settings: provisioner.Settings{
			Topology:            volumes.Topology{Enabled: true, Immediate: true},
			RetryMin:            time.Second,
			RetryMax:            5 * time.Minute,
			Workers:             100,
			DrainTimeout:        25 * time.Second,
			ProtectionWorkers:   1,
			OrphanSweepInterval: 5 * time.Minute,
		},

		LeaderElection: LeaderElectionConfig{
			LeaseDuration: 15 * time.Second,
			RenewDeadline: 10 * time.Second,
			RetryPeriod:   5 * time.Second,
			Release:       true,
		},
		MetricsPath: "/metrics",
	}
	if !reflect.DeepEqual(parsed.config, want) {
		t.Errorf("got  %+v\nwant %+v", parsed.config, want)
	}
	if err := parsed.config.validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

// everyFlag sets each flag to a value other than its default.
const everyFlag = `
	--csi-address=/s --timeout=2s --kubeconfig=/k --master=https://m --kube-api-qps=3 --kube-api-burst=4
	--volume-name-prefix=v --volume-name-uuid-length=5 --default-fstype=xfs --extra-create-metadata
	--controller-publish-readonly --retry-interval-start=6s --retry-interval-max=7s --worker-threads=8
	--shutdown-timeout=9s --leader-election --leader-election-namespace=n --leader-election-lease-duration=30s
	--leader-election-renew-deadline=20s --leader-election-retry-period=11s --leader-election-labels=team:storage --http-endpoint=:1
	--prevent-volume-mode-conversion=false --cloning-protection-threads=2 --snapshot-orphan-sweep-interval=3s
	--strict-topology --immediate-topology=false --feature-gates=Topology=false,VolumeAttributesClass=false,CrossNamespaceVolumeDataSource=true,ReleaseLeaderElectionOnExit=false
	--enable-capacity --capacity-threads=11 --capacity-poll-interval=12s --capacity-ownerref-level=2
	--capacity-for-immediate-binding --kube-api-capacity-qps=13 --kube-api-capacity-burst=14
	--node-deployment --node-deployment-immediate-binding=false --node-deployment-base-delay=15s --node-deployment-max-delay=16s
	--metrics-path=/m --enable-pprof --announce-classes --version -v=4 --logging-format=json`

func TestEveryFlagIsRead(t *testing.T) {
	t.Setenv("KUBECONFIG", "/env")
	t.Setenv("NAMESPACE", "n")
	t.Setenv("POD_NAME", "p")
	t.Setenv("NODE_NAME", "node-1")
	parsed, err := parseFlags(strings.Fields(everyFlag), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		CSIAddress: "/s", Timeout: 2 * time.Second,
		Kubeconfig: "/k", Master: "https://m", KubeAPIQPS: 3, KubeAPIBurst: 4, KubeconfigFallback: "/env",
		VolumeNamePrefix: "v", VolumeNameUUIDLength: 5,
		Options: plan.Options{DefaultFSType: "xfs", ExtraCreateMetadata: true, ReadOnlyPublish: true, CrossNamespaceSources: true},
		Settings: provisioner.Settings{
			RetryMin: 6 * time.Second, RetryMax: 7 * time.Second, Workers: 8, DrainTimeout: 9 * time.Second,
			ProtectionWorkers: 2, OrphanSweepInterval: 3 * time.Second, AnnounceClasses: true,
			Topology: volumes.Topology{Strict: true},
		},
		LeaderElection: LeaderElectionConfig{
			Enabled: true, Namespace: "n",
			LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 11 * time.Second,
			Labels: leaseLabels{"team": "storage"},
		},
		Capacity: CapacityConfig{
			Enabled: true, Threads: 11, PollInterval: 12 * time.Second, OwnerLevel: 2, Immediate: true, QPS: 13, Burst: 14,
			Namespace: "n", Pod: "p",
		},
		Node:         NodeConfig{Enabled: true, BaseDelay: 15 * time.Second, MaxDelay: 16 * time.Second, Name: "node-1"},
		HTTPEndpoint: ":1", MetricsPath: "/m", Pprof: true,
	}
	if !reflect.DeepEqual(parsed.config, want) {
		t.Errorf("got  %+v\nwant %+v", parsed.config, want)
	}
	if parsed.logging.Verbosity != 4 || parsed.logging.Format != "json" || !parsed.version {
		t.Errorf("logging is %+v, version asked for: %t", parsed.logging, parsed.version)
	}
}

// Without this, a new flag or field could be forgotten above.
func TestEveryFlagIsReadLeavesNoneOut(t *testing.T) {
	set, _, err := (&flags{logging: logsapi.NewLoggingConfiguration()}).set()
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, argument := range strings.Fields(everyFlag) {
		name, _, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		given[name] = true
	}
	klog := func(name string) bool { return strings.HasPrefix(name, "log-") || name == "vmodule" }
	set.VisitAll(func(f *pflag.Flag) {
		if !given[f.Name] && f.Deprecated == "" && !klog(f.Name) {
			t.Errorf("--%s is left out", f.Name)
		}
	})
	t.Setenv("KUBECONFIG", "")
	defaults, err := parseFlags(nil, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", "/env")
	t.Setenv("NAMESPACE", "n")
	t.Setenv("POD_NAME", "p")
	t.Setenv("NODE_NAME", "node-1")
	parsed, err := parseFlags(strings.Fields(everyFlag), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	expectChanged(t, "Config", reflect.ValueOf(defaults.config), reflect.ValueOf(parsed.config))
}

// expectChanged expects two structs to differ in every field that flags set.
func expectChanged(t *testing.T, path string, before, after reflect.Value) {
	t.Helper()
	for i := range before.NumField() {
		field := path + "." + before.Type().Field(i).Name
		switch {
		case field == "Config.Options.Driver" || field == "Config.Options.Identity": // set when connected
		case before.Field(i).Kind() == reflect.Struct:
			expectChanged(t, field, before.Field(i), after.Field(i))
		case field == "Config.MetricsAddress": // set by a deprecated flag
		case reflect.DeepEqual(before.Field(i).Interface(), after.Field(i).Interface()):
			t.Errorf("%s has its default", field)
		}
	}
}

func TestFlagsRefused(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"--timeout=soon"}, {"--feature-gates=NoSuchGate=true"},
		{"--leader-election-labels=team"}, {"--leader-election-labels=a:b:c"}} {
		if _, err := parseFlags(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q accepted", args)
		}
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if _, err := parseFlags([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) || !strings.Contains(out.String(), "--csi-address") {
		t.Errorf("--help gave %v and wrote %s", err, &out)
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--version"}, &out); err != nil || out.String() != "csi-provisioner dev, commit unknown of unknown\n" {
		t.Errorf("--version gave %v and wrote %q", err, &out)
	}
}

func TestConfigRefused(t *testing.T) {
	tests := map[string]string{
		"--csi-address=":                           "--csi-address",
		"--timeout=0s":                             "--timeout",
		"--cloning-protection-threads=-1":          "--cloning-protection-threads",
		"--worker-threads=0":                       "--worker-threads",
		"--shutdown-timeout=-1s":                   "--shutdown-timeout",
		"--volume-name-prefix=PVC":                 "prefix",
		"--volume-name-uuid-length=0":              "UUID length",
		"--leader-election-retry-period=0s":        "--leader-election-retry-period",
		"--leader-election-renew-deadline=5s":      "--leader-election-renew-deadline",
		"--leader-election-lease-duration=10s":     "--leader-election-lease-duration",
		"--leader-election-labels=a b:c":           "--leader-election-labels",
		"--leader-election-labels=a:-":             "--leader-election-labels",
		"--metrics-path=relative":                  "relative",
		"--http-endpoint=256.256.256.256:1":        "256.256.256.256",
		"--metrics-path=/healthz/leader-election":  "metrics path",
		"--kubeconfig=/does/not/exist/kube.config": "/does/not/exist/kube.config",
	}
	for flag, says := range tests {
		t.Run(flag, func(t *testing.T) {
			args := []string{"--leader-election", "--master=http://127.0.0.1:1", "--kubeconfig=", "--http-endpoint=127.0.0.1:0"}
			parsed, err := parseFlags(append(args, flag), &bytes.Buffer{})
			if err != nil {
				t.Fatal(err)
			}
			parsed.config.adjust(t.Context())
			if _, err := New(parsed.config); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("New() = %v, want an error that says %q", err, says)
			}
		})
	}
}

func writeKubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\n" +
		"clusters: [{name: k, cluster: {server: '" + server + "'}}]\n" +
		"contexts: [{name: c, context: {cluster: k}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhichAPIServer(t *testing.T) {
	flagged, environment := writeKubeconfig(t, "https://flagged"), writeKubeconfig(t, "https://environment")
	tests := map[string]struct {
		config Config
		want   string
	}{
		"flag beats environment":   {Config{Kubeconfig: flagged, KubeconfigFallback: environment}, "https://flagged"},
		"master beats environment": {Config{Master: "https://master", KubeconfigFallback: environment}, "https://master"},
		"master beats kubeconfig":  {Config{Master: "https://master", Kubeconfig: flagged}, "https://master"},
		"environment is the last":  {Config{KubeconfigFallback: environment}, "https://environment"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := test.config.restConfig()
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != test.want {
				t.Errorf("API server is %s, want %s", config.Host, test.want)
			}
		})
	}
}

func TestRateLimit(t *testing.T) {
	tests := map[string]struct {
		qps       float32
		burst     int
		wantQPS   float32
		wantBurst int
	}{
		"none by default": {0, 0, -1, 0},
		"none at all":     {0, 10, -1, 0},
		"unlimited":       {-1, 10, -1, 0},
		"no burst":        {5, -1, 5, 10},
		"as asked for":    {5, 10, 5, 10},
		"burst follows":   {5, 0, 5, 10},
		"slow":            {0.1, 0, 0.1, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			asked := Config{Master: "https://m", KubeAPIQPS: test.qps, KubeAPIBurst: test.burst}
			asked.adjust(t.Context())
			config, err := asked.restConfig()
			if err != nil {
				t.Fatal(err)
			}
			// client-go: negative is no limit, zero is its default of 5.
			if config.QPS != test.wantQPS || config.Burst != test.wantBurst {
				t.Errorf("QPS %g, burst %d, want %g, %d", config.QPS, config.Burst, test.wantQPS, test.wantBurst)
			}
		})
	}
}

// Renewals of the lease neither queue behind other requests nor wait for one that hangs.
func TestLeaseClientHasLimitsOfItsOwn(t *testing.T) {
	made, err := Config{Master: "https://m", KubeAPIQPS: 1, LeaderElection: LeaderElectionConfig{RenewDeadline: 10 * time.Second}}.clients()
	if err != nil {
		t.Fatal(err)
	}
	client := func(from kubernetes.Interface) *rest.RESTClient {
		restClient, ok := from.CoordinationV1().RESTClient().(*rest.RESTClient)
		if !ok {
			t.Fatalf("%T", from.CoordinationV1().RESTClient())
		}
		return restClient
	}
	work, lease := client(made.work), client(made.lease)
	if work.GetRateLimiter() == nil || lease.GetRateLimiter() != nil {
		t.Errorf("rate limits are %v of the work and %v of the lease", work.GetRateLimiter(), lease.GetRateLimiter())
	}
	if work.Client.Timeout != 0 || lease.Client.Timeout != 5*time.Second {
		t.Errorf("timeouts are %s of the work and %s of the lease", work.Client.Timeout, lease.Client.Timeout)
	}
}
