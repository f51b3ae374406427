// Command nfsplugin is the NFS CSI driver: the controller's part, which makes
// volumes on exports, and the node's, which mounts them into pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

// version is set when linking.
var version = "dev"

func main() {
	// Modes are given exactly wherever something is made (pkg/store).
	unix.Umask(0)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	// The first signal stops gracefully, the second one at once.
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
		_, err := fmt.Fprintln(out, "nfsplugin", version)
		return err
	}
	if err := logsapi.ValidateAndApply(flags.logging, nil); err != nil {
		return err
	}
	for _, name := range flags.ignored {
		klog.FromContext(ctx).Info("A flag of csi-driver-nfs means nothing here and is ignored", logkeys.Flag, "--"+name)
	}
	app, err := New(ctx, flags.config)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting nfsplugin", logkeys.Version, version, logkeys.Mode, flags.config.Mode)
	return app.Run(ctx)
}
