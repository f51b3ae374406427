package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// TestFlagsOfTheExternalProvisioner checks each flag of external-provisioner v6.3.0 and of
// earlier versions against docs/provisioner.md.
func TestFlagsOfTheExternalProvisioner(t *testing.T) {
	// Flags whose default differs on purpose.
	type flag struct{ there, here string }
	same := func(value string) flag { return flag{value, value} }
	table := map[string]flag{
		"automaxprocs":                      same(""),
		"capacity-for-immediate-binding":    same("false"),
		"capacity-ownerref-level":           same("1"),
		"capacity-poll-interval":            same("1m0s"),
		"capacity-threads":                  same("1"),
		"cloning-protection-threads":        same("1"),
		"connection-timeout":                same(""),
		"controller-publish-readonly":       same("false"),
		"csi-address":                       same("/run/csi/socket"),
		"default-fstype":                    same(""),
		"enable-capacity":                   same("false"),
		"enable-leader-election":            same("false"),
		"enable-pprof":                      same("false"),
		"extra-create-metadata":             same("false"),
		"feature-gates":                     same(""),
		"http-endpoint":                     same(""),
		"immediate-topology":                same("true"),
		"kube-api-burst":                    {"10", "0"}, // no limit
		"kube-api-capacity-burst":           same("5"),
		"kube-api-capacity-qps":             same("1"),
		"kube-api-qps":                      {"5", "0"}, // no limit
		"kubeconfig":                        same(""),
		"leader-election":                   same("false"),
		"leader-election-labels":            same(""),
		"leader-election-lease-duration":    same("15s"),
		"leader-election-namespace":         same(""),
		"leader-election-renew-deadline":    same("10s"),
		"leader-election-retry-period":      same("5s"),
		"leader-election-type":              same(""),
		"master":                            same(""),
		"metrics-address":                   same(""),
		"metrics-path":                      same("/metrics"),
		"node-deployment":                   same("false"),
		"node-deployment-base-delay":        same("20s"),
		"node-deployment-immediate-binding": same("true"),
		"node-deployment-max-delay":         same("1m0s"),
		"prevent-volume-mode-conversion":    same("true"),
		"provisioner":                       same(""),
		"retry-interval-max":                same("5m0s"),
		"retry-interval-start":              same("1s"),
		"snapshot-orphan-sweep-interval":    same("5m0s"),
		"strict-topology":                   same("false"),
		"timeout":                           {"10s", "1m0s"}, // slow creates would pile up
		"version":                           same("false"),
		"volume-name-prefix":                same("pvc"),
		"volume-name-uuid-length":           same("-1"),
		"worker-threads":                    same("100"),
	}
	klog := []string{
		"add_dir_header", "alsologtostderr", "log_backtrace_at", "log_dir", "log_file", "log_file_max_size",
		"logtostderr", "one_output", "skip_headers", "skip_log_headers", "stderrthreshold",
		"log-flush-frequency", "log-json-info-buffer-size", "log-json-split-stream", "log-text-info-buffer-size", "log-text-split-stream",
		"logging-format", "v", "vmodule",
	}
	own := []string{"announce-classes", "shutdown-timeout"}

	t.Setenv("KUBECONFIG", "")
	set, _, err := (&flags{logging: logsapi.NewLoggingConfiguration()}).set()
	if err != nil {
		t.Fatal(err)
	}
	set.VisitAll(func(f *pflag.Flag) {
		if _, known := table[f.Name]; !known && !slices.Contains(klog, f.Name) && !slices.Contains(own, f.Name) {
			t.Errorf("--%s is not in the table", f.Name)
		}
	})
	for name, want := range table {
		f := set.Lookup(name)
		if f == nil {
			t.Errorf("--%s is not there", name)
			continue
		}
		if f.DefValue != want.here {
			t.Errorf("--%s is %q by default, want %q (there: %q)", name, f.DefValue, want.here, want.there)
		}
		if f.Usage == "" && f.Deprecated == "" {
			t.Errorf("--%s says nothing", name)
		}
	}
	for _, name := range slices.Concat(klog, own) {
		if set.Lookup(name) == nil {
			t.Errorf("--%s is not there", name)
		}
	}
}

func TestDeprecatedFlags(t *testing.T) {
	var out bytes.Buffer
	parsed, err := parseFlags(strings.Fields("--enable-leader-election --metrics-address=:1 --provisioner=a --connection-timeout 5s "+
		"--leader-election-type=leases --automaxprocs --logtostderr --log_dir=/x --feature-gates=HonorPVReclaimPolicy=true"), &out)
	if err != nil {
		t.Fatal(err)
	}
	if !parsed.config.LeaderElection.Enabled {
		t.Error("replicas would work at the same time")
	}
	if got := parsed.config.httpEndpoint(); got != ":1" {
		t.Errorf("metrics are at %q", got)
	}
	for _, name := range []string{"enable-leader-election", "metrics-address", "provisioner", "connection-timeout", "leader-election-type", "automaxprocs", "logtostderr", "log_dir"} {
		if !strings.Contains(out.String(), "Flag --"+name+" has been deprecated") {
			t.Errorf("--%s is not reported: %s", name, &out)
		}
	}
	if err := (parsed.config).validate(); err != nil {
		t.Error(err)
	}
	parsed.config.HTTPEndpoint = ":2"
	if err := parsed.config.validate(); err == nil || !strings.Contains(err.Error(), "--metrics-address") {
		t.Errorf("two addresses: %v", err)
	}
	if _, err := parseFlags([]string{"--feature-gates=HonorPVReclaimPolicy=false"}, &out); err == nil {
		t.Error("what cannot be switched off was")
	}
}
