// Command provisioner measures csi-provisioner beside a bare loop of the writes
// that it cannot do without, on an etcd and a kube-apiserver of its own: see
// docs/bench.md. It runs here, without the lab (`make bench-provisioner`). One
// line a figure; it never fails because of one.
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
	kube        string
	provisioner string
	manifests   string
	only        []string
	claims      []int // how many at once, one after the other
	bound       int   // claims that are bound and released by the real controllers
	others      int   // claims beside a slow one
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
	o := options{}
	set := pflag.NewFlagSet("bench-provisioner", pflag.ContinueOnError)
	set.StringVar(&o.kube, "kube", "", "the multi-call binary that `lab build` makes")
	set.StringVar(&o.provisioner, "provisioner", "bin/csi-provisioner", "the program to measure")
	set.StringVar(&o.manifests, "manifests", "deploy/kubernetes", "the kustomization with its permissions")
	set.StringSliceVar(&o.only, "only", nil, "run only the groups named: "+strings.Join(groupNames(), ", "))
	set.IntSliceVar(&o.claims, "claims", []int{1000, 5000}, "claims at once")
	set.IntVar(&o.bound, "bound", 300, "claims that the real controllers bind and release")
	set.IntVar(&o.others, "others", 500, "claims beside a slow one")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	for _, name := range o.only {
		if !slices.Contains(groupNames(), name) {
			return o, fmt.Errorf("--only %q: must be of %s", name, strings.Join(groupNames(), ", "))
		}
	}
	if o.kube == "" {
		return o, errors.New("--kube is not given: run it with `make bench-provisioner`")
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	for _, g := range groups() {
		if len(o.only) > 0 && !slices.Contains(o.only, g.name) {
			continue
		}
		began := time.Now()
		if err := g.run(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s: %s\n", g.name, time.Since(began).Round(time.Second))
	}
	return nil
}

// group is figures that are measured together.
type group struct {
	name string
	run  func(context.Context, options) error
}

func groups() []group {
	return []group{
		{"claims", benchClaims},
		{"bound", benchBound},
		{"slow", benchSlow},
	}
}

func groupNames() []string {
	var names []string
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
}
