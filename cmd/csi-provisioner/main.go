// Command csi-provisioner creates and deletes the volumes of PersistentVolumeClaims with
// a CSI driver.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
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
	collectOften()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal stops gracefully, the second one immediately.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		klog.FromContext(ctx).Error(err, "csi-provisioner failed")
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
		_, err := fmt.Fprintf(out, "csi-provisioner %s, commit %s of %s\n", version, commit, date)
		return err
	}
	if err := logsapi.ValidateAndApply(flags.logging, nil); err != nil {
		return err
	}
	if len(flags.arguments) > 0 {
		klog.FromContext(ctx).Info("Ignoring arguments that are no flags; the value of a bool flag follows an equals sign",
			logkeys.Arguments, flags.arguments)
	}
	flags.config.adjust(ctx)
	app, err := New(flags.config)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting csi-provisioner", logkeys.Version, version, logkeys.Commit, commit, logkeys.Date, date)
	return app.Run(ctx)
}
