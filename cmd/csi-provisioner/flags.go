package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nfs-csi/nfs-csi/pkg/flagref"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// flags is the parsed command line.
type flags struct {
	config  Config
	logging *logsapi.LoggingConfiguration
	version bool
	// arguments that are no flags.
	arguments []string
}

// parseFlags returns pflag.ErrHelp after writing the usage to out.
func parseFlags(args []string, out io.Writer) (*flags, error) {
	parsed := &flags{
		logging: logsapi.NewLoggingConfiguration(),
		config: Config{
			// From the environment, so flags override it.
			KubeconfigFallback: os.Getenv("KUBECONFIG"),
		},
	}
	set, gates, err := parsed.set()
	if err != nil {
		return nil, err
	}
	set.SetOutput(out)
	set.Usage = func() { fmt.Fprint(out, flagref.Help(set)) }
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	parsed.config.Topology.Enabled = gates.Enabled(gateTopology)
	parsed.config.Options.AttributesClasses = gates.Enabled(gateAttributesClass)
	parsed.config.Options.CrossNamespaceSources = gates.Enabled(gateCrossNamespace)
	parsed.config.LeaderElection.Release = gates.Enabled(gateReleaseLease)
	parsed.arguments = set.Args()
	return parsed, nil
}

// set also returns the feature gates, which are set when the flags are parsed.
func (parsed *flags) set() (*pflag.FlagSet, featuregate.FeatureGate, error) {
	set := pflag.NewFlagSet("csi-provisioner", pflag.ContinueOnError)
	set.BoolVar(&parsed.version, "version", false, "Print the version and exit.")
	addDriverFlags(set, &parsed.config)
	addKubernetesFlags(set, &parsed.config)
	addVolumeFlags(set, &parsed.config)
	addWorkFlags(set, &parsed.config)
	addLeaderElectionFlags(set, &parsed.config.LeaderElection)
	addHTTPFlags(set, &parsed.config)
	addSourceFlags(set, &parsed.config)
	addTopologyFlags(set, &parsed.config.Topology)
	addCapacityFlags(set, &parsed.config.Capacity)
	addNodeFlags(set, &parsed.config.Node)
	if err := addDeprecatedFlags(set, &parsed.config); err != nil {
		return nil, nil, err
	}
	logsapi.AddFlags(parsed.logging, set)
	gates, err := addFeatureFlag(set)
	return set, gates, err
}

func addDriverFlags(set *pflag.FlagSet, c *Config) {
	set.StringVar(&c.CSIAddress, "csi-address", "/run/csi/socket",
		"Path of the CSI driver's unix socket.")
	// The ten seconds of the external-provisioner are less than a slow CreateVolume
	// takes: calls would time out and be retried while the driver works.
	set.DurationVar(&c.Timeout, "timeout", time.Minute,
		"Timeout of a call of the CSI driver. Calls that time out are retried, so this should be longer than creating a volume usually takes.")
	set.BoolVar(&c.AnnounceClasses, "announce-classes", false,
		"Call GetCapacity for each StorageClass of the driver at the start, and when the driver has restarted, so that a driver that works on its storage in the background continues without waiting for a volume to be created or deleted.")
}

func addKubernetesFlags(set *pflag.FlagSet, c *Config) {
	set.StringVar(&c.Kubeconfig, "kubeconfig", "",
		"Path of a kubeconfig file. Without it and --master, the file in the environment variable KUBECONFIG is used, or else the pod's service account.")
	set.StringVar(&c.Master, "master", "",
		"URL of the API server, instead of the one in the kubeconfig file.")
	set.Float32Var(&c.KubeAPIQPS, "kube-api-qps", 0,
		"Requests per second to the API server; 0 or a negative number for no client-side limit, since the API server has priority and fairness.")
	set.IntVar(&c.KubeAPIBurst, "kube-api-burst", 0,
		"Burst of requests to the API server, with --kube-api-qps; 0 for twice --kube-api-qps.")
}

func addVolumeFlags(set *pflag.FlagSet, c *Config) {
	set.StringVar(&c.VolumeNamePrefix, "volume-name-prefix", "pvc",
		"Prefix of the names of volumes.")
	set.IntVar(&c.VolumeNameUUIDLength, "volume-name-uuid-length", plan.WholeUID,
		"How many hexadecimal digits of the claim's UID follow the prefix, up to 32; -1 for the whole UID with dashes. With few digits, names of different claims can collide.")
	set.StringVar(&c.Options.DefaultFSType, "default-fstype", "",
		"File system type of volumes whose StorageClass names none; empty to leave it to the driver.")
	set.BoolVar(&c.Options.ExtraCreateMetadata, "extra-create-metadata", false,
		"Pass the names of claim and volume to the driver, as parameters csi.storage.k8s.io/pvc/name, csi.storage.k8s.io/pvc/namespace and csi.storage.k8s.io/pv/name.")
	set.BoolVar(&c.Options.ReadOnlyPublish, "controller-publish-readonly", false,
		"Mark volumes of claims whose only access mode is ReadOnlyMany as read-only.")
}

func addSourceFlags(set *pflag.FlagSet, c *Config) {
	set.BoolVar(&c.Options.PreventModeConversion, "prevent-volume-mode-conversion", true,
		"Refuse to restore a snapshot of a file system as a block volume, or vice versa, unless its VolumeSnapshotContent allows it.")
	set.IntVar(&c.ProtectionWorkers, "cloning-protection-threads", 1,
		"How many finalizers of source claims and source snapshots are removed at the same time.")
	set.DurationVar(&c.OrphanSweepInterval, "snapshot-orphan-sweep-interval", 5*time.Minute,
		"Interval between sweeps for orphaned finalizers on source claims and source snapshots; 0 to not search snapshots.")
}

func addWorkFlags(set *pflag.FlagSet, c *Config) {
	set.DurationVar(&c.RetryMin, "retry-interval-start", defaultRetryMin,
		"Backoff after the first failure of a creation or deletion; doubles with each failure.")
	set.DurationVar(&c.RetryMax, "retry-interval-max", defaultRetryMax,
		"Maximum backoff of a failing creation or deletion.")
	set.IntVar(&c.Workers, "worker-threads", 100,
		"How many volumes are created, and how many are deleted, at the same time.")
	set.DurationVar(&c.DrainTimeout, "shutdown-timeout", 25*time.Second,
		"How long calls in flight may take to finish after SIGTERM. Should be less than the pod's terminationGracePeriodSeconds.")
}

func addLeaderElectionFlags(set *pflag.FlagSet, c *LeaderElectionConfig) {
	set.BoolVar(&c.Enabled, "leader-election", false,
		"Let only one of several replicas work: the one that holds the Lease named after the driver.")
	set.StringVar(&c.Namespace, "leader-election-namespace", "",
		"Namespace of the Lease; empty for the pod's own.")
	set.DurationVar(&c.LeaseDuration, "leader-election-lease-duration", 15*time.Second,
		"Time after the last renewal until another replica takes over.")
	set.DurationVar(&c.RenewDeadline, "leader-election-renew-deadline", 10*time.Second,
		"Time without a successful renewal after which the leader gives up.")
	set.DurationVar(&c.RetryPeriod, "leader-election-retry-period", 5*time.Second,
		"Interval between attempts to acquire or renew the Lease.")
	set.Var(&c.Labels, "leader-election-labels",
		"Labels of the Lease, such as team:storage,stage:test. Each use of the flag adds labels.")
}

func addHTTPFlags(set *pflag.FlagSet, c *Config) {
	set.StringVar(&c.HTTPEndpoint, "http-endpoint", "",
		"TCP address, such as :8080, for metrics, /healthz and /healthz/leader-election; empty for none.")
	set.StringVar(&c.MetricsPath, "metrics-path", "/metrics",
		"Path of the metrics on --http-endpoint.")
	set.BoolVar(&c.Pprof, "enable-pprof", false,
		"Serve profiles on --http-endpoint, under /debug/pprof/.")
}
