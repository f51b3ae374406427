package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// Values with which external-provisioner v6.3.0 starts.
func TestValuesOfTheExternalProvisionerAreAccepted(t *testing.T) {
	t.Setenv("NODE_NAME", "node")
	t.Setenv("NAMESPACE", "ns")
	t.Setenv("POD_NAME", "pod")
	for args, test := range map[string]struct {
		want func(*Config)
		// logs names the flag whose effect differs.
		logs string
	}{
		"--enable-pprof":                               {func(*Config) {}, "--enable-pprof"},
		"--enable-pprof --metrics-address=:0":          {func(c *Config) { c.Pprof, c.MetricsAddress = true, ":0" }, ""},
		"--retry-interval-start=10m":                   {func(c *Config) { c.RetryMin = 5 * time.Minute }, ""},
		"--retry-interval-max=1ms":                     {func(c *Config) { c.RetryMin, c.RetryMax = time.Millisecond, time.Millisecond }, ""},
		"--retry-interval-start=0":                     {func(*Config) {}, "--retry-interval-start"},
		"--retry-interval-max=-1s":                     {func(*Config) {}, "--retry-interval-max"},
		"--cloning-protection-threads=0":               {func(*Config) {}, "--cloning-protection-threads"},
		"--snapshot-orphan-sweep-interval=0":           {func(c *Config) { c.OrphanSweepInterval = 0 }, ""},
		"--snapshot-orphan-sweep-interval=-1s":         {func(c *Config) { c.OrphanSweepInterval = 0 }, ""},
		"--kube-api-qps=-1":                            {func(c *Config) { c.KubeAPIQPS = -1 }, ""},
		"--kube-api-burst=-1":                          {func(*Config) {}, ""},
		"--enable-capacity --capacity-threads=0":       {func(c *Config) { c.Capacity.Enabled = true }, "--capacity-threads"},
		"--enable-capacity --capacity-poll-interval=0": {func(c *Config) { c.Capacity.Enabled = true }, "--capacity-poll-interval"},
		"--enable-capacity --kube-api-capacity-qps=-1 --kube-api-capacity-burst=-1": {func(c *Config) {
			c.Capacity.Enabled, c.Capacity.QPS, c.Capacity.Burst = true, -1, 0
		}, ""},
		"--node-deployment --node-deployment-base-delay=0": {func(c *Config) {
			c.Node.Enabled, c.Node.BaseDelay = true, time.Millisecond
		}, ""},
		"--node-deployment --node-deployment-max-delay=1s": {func(c *Config) {
			c.Node.Enabled, c.Node.BaseDelay, c.Node.MaxDelay = true, time.Second, time.Second
		}, ""},
		"--feature-gates=ReleaseLeaderElectionOnExit=true":  {func(*Config) {}, ""},
		"--feature-gates=ReleaseLeaderElectionOnExit=false": {func(c *Config) { c.LeaderElection.Release = false }, ""},
	} {
		t.Run(args, func(t *testing.T) {
			defaults, err := parseFlags(nil, &bytes.Buffer{})
			if err != nil {
				t.Fatal(err)
			}
			want := defaults.config
			test.want(&want)
			parsed, err := parseFlags(strings.Fields(args), &bytes.Buffer{})
			if err != nil {
				t.Fatal(err)
			}
			logged := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			parsed.config.adjust(klog.NewContext(t.Context(), logged))
			if !reflect.DeepEqual(parsed.config, want) {
				t.Errorf("got  %+v\nwant %+v", parsed.config, want)
			}
			if err := parsed.config.validate(); err != nil {
				t.Errorf("refused: %v", err)
			}
			buffer, ok := logged.GetSink().(ktesting.Underlier)
			if !ok {
				t.Fatalf("the log is a %T", logged.GetSink())
			}
			if text := buffer.GetBuffer().String(); test.logs == "" && text != "" || !strings.Contains(text, test.logs) {
				t.Errorf("the log is %q, should name %q", text, test.logs)
			}
		})
	}
}

// A pod with `--strict-topology true` starts, as with external-provisioner.
func TestArgumentsThatAreNoFlags(t *testing.T) {
	parsed, err := parseFlags([]string{"--strict-topology", "true", "--worker-threads=5"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if !parsed.config.Topology.Strict || parsed.config.Workers != 5 || len(parsed.arguments) != 1 || parsed.arguments[0] != "true" {
		t.Errorf("got %+v, arguments %q", parsed.config, parsed.arguments)
	}
}
