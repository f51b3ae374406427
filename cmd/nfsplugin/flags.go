package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nfs-csi/nfs-csi/pkg/flagref"
)

// flags is the parsed command line.
type flags struct {
	config  Config
	logging *logsapi.LoggingConfiguration
	version bool
	probe   bool
	// ignored are the flags of csi-driver-nfs without effect that were set.
	ignored []string
}

// Config of an App; the flags that set it document each field.
type Config struct {
	Endpoint   string
	DriverName string
	NodeID     string
	Mode       string

	HTTPEndpoint string

	WorkingMountDir  string
	ShareIdleTimeout time.Duration
	MountOptions     []string
	ListExports      []string
	ReclaimWorkers   int
	CopyWorkers      int
	ReclaimRate      int
	MountPermissions string
	DirectoryMode    string
	OnDelete         string
	ClusterID        string

	EnableEphemeral       bool
	EphemeralServers      []string
	EphemeralMountOptions []string

	KubeletRegistrationPath string
	PluginRegistrationDir   string

	ShutdownTimeout time.Duration
}

// parseFlags returns pflag.ErrHelp after writing the usage to out.
func parseFlags(args []string, out io.Writer) (*flags, error) {
	parsed := &flags{logging: logsapi.NewLoggingConfiguration()}
	set, ignored := parsed.set()
	set.SetOutput(out)
	set.Usage = func() { fmt.Fprint(out, flagref.Help(set)) }
	if err := set.Parse(longFlags(set, args)); err != nil {
		return nil, err
	}
	ignored.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			parsed.ignored = append(parsed.ignored, f.Name)
		}
	})
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected arguments %q", set.Args())
	}
	return parsed, nil
}

// set also returns those of its flags that have no effect.
func (parsed *flags) set() (set, ignored *pflag.FlagSet) {
	c := &parsed.config
	set = pflag.NewFlagSet("nfsplugin", pflag.ContinueOnError)
	set.BoolVar(&parsed.version, "version", false, "Print the version and exit.")
	set.BoolVar(&parsed.probe, "probe", false,
		"Call Probe of the nfsplugin that serves --endpoint, and exit: with status 0 if it is ready. For kubelet's probes.")
	set.StringVar(&c.Endpoint, "endpoint", "unix:///run/csi/socket",
		"Unix socket on which to serve the CSI.")
	set.StringVar(&c.DriverName, "driver-name", "nfs.csi.internal",
		"Name of the driver, as in CSIDriver objects and StorageClasses.")
	set.StringVar(&c.NodeID, "node-id", "",
		"Name of the node of this process; required for the Node service.")
	set.StringVar(&c.Mode, "mode", "all",
		"Which services to serve: controller, node or all.")
	set.StringVar(&c.HTTPEndpoint, "http-endpoint", "",
		"TCP address, such as :9809, for /metrics and /healthz; empty for none.")
	set.StringVar(&c.WorkingMountDir, "working-mount-dir", "/tmp/nfs-csi",
		"Directory below which the controller mounts exports. It must belong to this process alone.")
	set.DurationVar(&c.ShareIdleTimeout, "share-idle-timeout", 5*time.Minute,
		"How long the controller keeps an export mounted after its last use.")
	set.StringSliceVar(&c.MountOptions, "mount-options", nil,
		"Options with which the controller mounts an export for calls without mount options, such as DeleteVolume, unless it is already mounted.")
	set.StringSliceVar(&c.ListExports, "list-exports", nil,
		"Exports, as server:/share, that lists of volumes and snapshots include from the start. They include others after a call has named them.")
	set.IntVar(&c.ReclaimWorkers, "reclaim-workers", 32,
		"How many directories of deleted volumes are emptied at the same time on each export.")
	set.IntVar(&c.CopyWorkers, "copy-workers", 16,
		"How many files a clone, a snapshot or a restore copies at the same time.")
	set.IntVar(&c.ReclaimRate, "reclaim-rate", 0,
		"How many files of deleted volumes are removed per second on each export; 0 for no limit.")
	set.BoolVar(&c.EnableEphemeral, "enable-ephemeral", false,
		"Allow inline volumes of pods, on the servers in --ephemeral-servers.")
	set.StringSliceVar(&c.EphemeralServers, "ephemeral-servers", nil,
		"Servers that inline volumes may use: server, or server:/share for that share and everything below it.")
	set.StringSliceVar(&c.EphemeralMountOptions, "ephemeral-mount-options", []string{"ro", "rw", "vers", "nfsvers", "noatime", "noexec"},
		"Mount options that inline volumes may have: name, for any value, or name=value.")
	set.StringVar(&c.MountPermissions, "mount-permissions", "0",
		"Octal mode, with a leading zero, of the directory of a new volume whose class does not set one; 0 is --directory-mode.")
	set.StringVar(&c.DirectoryMode, "directory-mode", "0777",
		"Octal mode, with a leading zero, of the directory of a new volume if neither its class nor --mount-permissions sets one.")
	set.StringVar(&c.OnDelete, "default-ondelete-policy", "delete",
		"What to do with the directory of a deleted volume if its class, record and ID do not tell: delete, retain or archive.")
	set.StringVar(&c.ClusterID, "cluster-id", "",
		"Identifies this cluster among others on the same exports, in the record of each new volume; required for classes with reuse: claim.")
	set.StringVar(&c.KubeletRegistrationPath, "kubelet-registration-path", "",
		"Path of the CSI socket on the host, for kubelet; empty to not register with kubelet.")
	set.StringVar(&c.PluginRegistrationDir, "plugin-registration-dir", "/registration",
		"Path of kubelet's plugins_registry directory in this container.")
	set.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 20*time.Second,
		"How long calls in flight may take to finish after SIGTERM. Should be less than the pod's terminationGracePeriodSeconds.")
	logsapi.AddFlags(parsed.logging, set)
	return set, addPredecessors(set, c)
}
