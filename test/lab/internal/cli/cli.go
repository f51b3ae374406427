// Package cli is the lab's command line.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/nfs-csi/nfs-csi/test/lab/internal/host"
	"github.com/nfs-csi/nfs-csi/test/lab/internal/job"
)

const usage = `Usage:
  lab deps                         install the Debian packages that the lab needs
  lab build                        build and cache the Kubernetes programs; prints the path of the binary
  lab nfs [flags] -- COMMAND...     run COMMAND next to a kernel NFS server and client
  lab cluster [flags] -- COMMAND... run COMMAND next to the same and a Kubernetes node

Without a COMMAND, nfs and cluster open a shell in the guest.

Flags:
`

// Run runs the lab and returns the exit code of the command it ran.
func Run(ctx context.Context, args []string) (int, error) {
	c, err := parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return c(ctx)
}

type command func(context.Context) (int, error)

// parse turns arguments into what to run, and runs nothing.
func parse(args []string) (command, error) {
	o := host.Options{}
	var images []string
	flags := pflag.NewFlagSet("lab", pflag.ContinueOnError)
	flags.Usage = func() { printUsage(os.Stdout, flags) }
	flags.SortFlags = false
	flags.SetInterspersed(true)
	flags.BoolVar(&o.Keep, "keep", false, "leave the disks in the scratch directory, for another boot with the same --scratch")
	flags.BoolVarP(&o.Verbose, "verbose", "v", false, "tell of the guest's steps on standard error until the command runs")
	flags.StringVar(&o.Scratch, "scratch", "", "the one directory that the guest can write to, /scratch in the guest (default a temporary one)")
	flags.DurationVar(&o.Timeout, "timeout", 30*time.Minute, "end the guest after this long")
	flags.StringVar(&o.Memory, "memory", "6G", "memory of the guest")
	flags.StringVar(&o.Ext4Size, "ext4-size", "4G", "size of the ext4 export")
	flags.StringVar(&o.XFSSize, "xfs-size", "4G", "size of the XFS export")
	flags.StringVar(&o.NodeSize, "node-size", "8G", "size of the node's own disk (cluster)")
	flags.StringArrayVar(&o.Env, "env", nil, "NAME=VALUE for the command's environment; may be given again")
	flags.StringArrayVar(&images, "images", nil, "directory of image archives to import into the node; may be given again (cluster; default bin/images of the repository)")

	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	rest := flags.Args()
	if len(rest) == 0 {
		printUsage(os.Stderr, flags)
		return nil, errors.New("want a command: deps, build, nfs or cluster")
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	o.CacheDir, o.Command = cache, rest[1:]
	switch rest[0] {
	case "deps":
		return noArgs(rest, host.InstallDeps)
	case "build":
		return noArgs(rest, func(ctx context.Context) error {
			kube, err := host.BuildKube(ctx, cache)
			if err == nil {
				fmt.Println(kube)
			}
			return err
		})
	case "cluster":
		return func(ctx context.Context) (int, error) { return runCluster(ctx, o, images) }, nil
	case "nfs":
		return func(ctx context.Context) (int, error) { return host.Run(ctx, o) }, nil
	}
	return nil, fmt.Errorf("unknown command %q: want deps, build, nfs or cluster", rest[0])
}

func runCluster(ctx context.Context, o host.Options, images []string) (int, error) {
	kube, err := host.BuildKube(ctx, o.CacheDir)
	if err != nil {
		return 0, err
	}
	archives, err := host.ImageArchives(images...)
	if err != nil {
		return 0, err
	}
	o.Cluster = &job.Cluster{Kube: kube, Images: archives}
	return host.Run(ctx, o)
}

func noArgs(rest []string, do func(context.Context) error) (command, error) {
	if len(rest) > 1 {
		return nil, fmt.Errorf("%s takes no arguments, got %q", rest[0], rest[1:])
	}
	return func(ctx context.Context) (int, error) { return 0, do(ctx) }, nil
}

func printUsage(w io.Writer, flags *pflag.FlagSet) {
	fmt.Fprint(w, usage+flags.FlagUsages())
}

// cacheDir keeps what is dear to build, outside the tree.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "nfs-csi-lab")
	return dir, os.MkdirAll(dir, 0o755)
}
