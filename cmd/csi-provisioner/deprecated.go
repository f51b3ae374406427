package main

import (
	"errors"

	"github.com/spf13/pflag"
)

// addDeprecatedFlags takes what the external-provisioner had in earlier versions,
// so that its manifests still work: each is reported when it is given.
func addDeprecatedFlags(set *pflag.FlagSet, c *Config) error {
	// One that asks for leader election must get it: two replicas would work at the
	// same time otherwise.
	set.BoolVar(&c.LeaderElection.Enabled, "enable-leader-election", false, "")
	set.StringVar(&c.MetricsAddress, "metrics-address", "", "")
	errs := []error{
		set.MarkDeprecated("enable-leader-election", "use --leader-election"),
		set.MarkDeprecated("metrics-address", "use --http-endpoint"),
	}
	for name, why := range map[string]string{
		"connection-timeout":   "it has no effect, as the driver is waited for",
		"provisioner":          "it has no effect, as the driver says its name",
		"leader-election-type": "it has no effect, as leader election always takes Leases",
		// Of klog, before logging had a format.
		"log_backtrace_at":  noEffect,
		"log_dir":           noEffect,
		"log_file":          noEffect,
		"log_file_max_size": noEffect,
		"stderrthreshold":   noEffect,
	} {
		set.Var(ignored{}, name, "")
		errs = append(errs, set.MarkDeprecated(name, why))
	}
	for name, why := range map[string]string{
		"automaxprocs":     "it has no effect, as the processors that the container may use are always respected",
		"add_dir_header":   noEffect,
		"alsologtostderr":  noEffect,
		"logtostderr":      noEffect,
		"one_output":       noEffect,
		"skip_headers":     noEffect,
		"skip_log_headers": noEffect,
	} {
		set.VarPF(ignored{}, name, "", "").NoOptDefVal = "true"
		errs = append(errs, set.MarkDeprecated(name, why))
	}
	return errors.Join(errs...)
}

const noEffect = "it has no effect, as everything is logged to stderr"

// ignored takes any value.
type ignored struct{}

func (ignored) String() string   { return "" }
func (ignored) Set(string) error { return nil }
func (ignored) Type() string     { return "string" }
