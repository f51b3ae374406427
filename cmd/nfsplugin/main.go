// Command nfsplugin is the NFS CSI driver: the controller, which creates volumes on
// exports, and the node plugin, which mounts them into pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/rpc"
)

// Set by the linker.
//
//nolint:gochecknoglobals // the linker can set nothing else
var (
	version = "dev"
	commit  = "unknown"
	date    = "unknown"
)

func main() {
	// pkg/store sets exact modes on everything that it creates.
	unix.Umask(0)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	// The first signal stops gracefully, the second one immediately.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		klog.FromContext(ctx).Error(err, "nfsplugin failed")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	klog.Flush()
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags, err := parseFlags(args, out)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if flags.version {
		_, err := fmt.Fprintf(out, "nfsplugin %s, commit %s of %s\n", version, commit, date)
		return err
	}
	if flags.probe {
		return probe(ctx, flags.config.Endpoint)
	}
	if err := logsapi.ValidateAndApply(flags.logging, nil); err != nil {
		return err
	}
	for _, name := range flags.ignored {
		klog.FromContext(ctx).Info("Ignoring a flag of csi-driver-nfs that has no effect", logkeys.Flag, "--"+name)
	}
	app, err := New(ctx, flags.config)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting nfsplugin", logkeys.Version, version, logkeys.Commit, commit, logkeys.Date, date, logkeys.Mode, flags.config.Mode)
	return app.Run(ctx)
}

// probeTimeout ends before kubelet's own, so that the event has the reason.
const probeTimeout = 4 * time.Second

// probe asks the process that serves endpoint.
func probe(ctx context.Context, endpoint string) error {
	prober, err := rpc.NewProber(endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return errors.Join(prober.Check(ctx), prober.Close())
}
