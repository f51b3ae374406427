// Command bench measures nfsplugin beside the system calls it cannot do
// without, in the same run and over the same kernel NFS: see docs/bench.md. It
// runs in the lab (`make bench`). One line a figure; it never fails because of
// one.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// options of a run.
type options struct {
	plugin  string
	server  string
	exports map[string]string // file system -> path of the export
	only    []string
	dir     string // for sockets, mount points and logs
	rounds  int    // samples of a quick operation
	many    int    // volumes on the export that is called full
	files   int    // in a volume that is deleted or reclaimed
	mounts  int    // NFS mounts already on a node that is called busy
	depth   int    // of a volume of directories in one another
	entries int    // in the one directory of a volume
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{exports: map[string]string{}}
	set := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	set.StringVar(&o.plugin, "plugin", "bin/nfsplugin", "the program to measure")
	set.StringSliceVar(&o.only, "only", nil, "run only the groups named: "+strings.Join(groupNames(), ", "))
	set.IntVar(&o.rounds, "rounds", 100, "samples of a quick operation")
	set.IntVar(&o.many, "many", 10000, "volumes on the full export")
	set.IntVar(&o.files, "files", 20000, "files in the volume that is deleted")
	set.IntVar(&o.mounts, "mounts", 500, "NFS mounts on the busy node")
	set.IntVar(&o.depth, "depth", 50_000, "directories in one another in a volume that is deleted")
	set.IntVar(&o.entries, "entries", 1_000_000, "entries in one directory of a volume that is deleted")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	for _, name := range o.only {
		if !slices.Contains(groupNames(), name) {
			return o, fmt.Errorf("--only %q: must be of %s", name, strings.Join(groupNames(), ", "))
		}
	}
	o.server = os.Getenv("LAB_NFS_SERVER")
	o.exports["ext4"], o.exports["xfs"] = os.Getenv("LAB_EXPORT_EXT4"), os.Getenv("LAB_EXPORT_XFS")
	if o.server == "" || o.exports["ext4"] == "" || o.exports["xfs"] == "" {
		return o, fmt.Errorf("no NFS server is named: run it with `make bench`")
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	syscall.Umask(0)
	if o.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	for _, delay := range []time.Duration{0, 500 * time.Microsecond} {
		if err := setDelay(delay); err != nil {
			return err
		}
		if err := o.runGroups(ctx, roundTrip(delay)); err != nil {
			return err
		}
	}
	return setDelay(0)
}

// runGroups measures every group with a plugin of its own, so that none meets
// what another left in its caches.
func (o options) runGroups(ctx context.Context, network string) error {
	for _, g := range groups() {
		if len(o.only) > 0 && !slices.Contains(o.only, g.name) {
			continue
		}
		began := time.Now()
		b, err := newBench(ctx, o, network)
		if err != nil {
			return err
		}
		if err := errors.Join(g.run(b), b.close()); err != nil {
			return fmt.Errorf("%s, %s: %w", g.name, network, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s, %s: %s\n", g.name, network, time.Since(began).Round(time.Second))
	}
	return nil
}

// group is figures that are measured together.
type group struct {
	name string
	run  func(*bench) error
}

func groups() []group {
	return []group{
		{"calls", benchCalls},
		{"volumes", benchVolumes},
		{"publish", benchPublish},
		{"delete", benchDelete},
		{"reclaim", benchReclaim},
		{"deep", benchDeep},
		{"wide", benchWide},
		{"copies", benchCopies},
		{"memory", benchMemory},
		{"full", benchFull},
	}
}

func groupNames() []string {
	var names []string
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
}
