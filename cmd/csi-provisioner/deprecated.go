package main

import (
	"errors"

	"github.com/spf13/pflag"
)

// addDeprecatedFlags accepts flags of earlier versions of the external-provisioner, so
// that its manifests still work. Each is reported when it is set.
func addDeprecatedFlags(set *pflag.FlagSet, c *Config) error {
	// This one must not be ignored, or two replicas would work at the same time.
	set.BoolVar(&c.LeaderElection.Enabled, "enable-leader-election", false, "The same as --leader-election.")
	set.StringVar(&c.MetricsAddress, "metrics-address", "", "The same as --http-endpoint.")
	errs := []error{
		set.MarkDeprecated("enable-leader-election", "use --leader-election"),
		set.MarkDeprecated("metrics-address", "use --http-endpoint"),
	}
	for name, why := range map[string]string{
		"connection-timeout":   "it has no effect, as csi-provisioner waits for the driver",
		"provisioner":          "it has no effect, as the driver reports its name",
		"leader-election-type": "it has no effect, as leader election always uses Leases",
		// klog flags from before --logging-format.
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
		"automaxprocs":     "it has no effect, as the CPU limit of the container is always respected",
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

// ignored accepts any value.
type ignored struct{}

func (ignored) String() string   { return "" }
func (ignored) Set(string) error { return nil }
func (ignored) Type() string     { return "string" }
