package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
	"github.com/nfs-csi/nfs-csi/test/integration/cluster"
)

const (
	// The one that deploy/kubernetes allows a journal.
	driverName = "nfs.csi.internal"
	namespace  = "nfs-csi"
	account    = "nfs-csi-controller"

	// As many at once as csi-provisioner works on by default.
	parallel = 100

	stopGrace = 30 * time.Second
	patience  = 5 * time.Minute
)

// bench is an API server of its own and a driver that does nothing.
type bench struct {
	options
	cluster    *cluster.Cluster
	client     kubernetes.Interface
	driver     *drivertest.Driver
	kubeconfig string
}

// inBench runs f with a bench that is gone afterwards.
func inBench(ctx context.Context, o options, f func(context.Context, *bench) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := cluster.StartAPIServer(ctx, o.kube)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	b := &bench{options: o, cluster: c, driver: drivertest.New(driverName)}
	config := c.AdminConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	if b.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := c.Apply(ctx, o.manifests); err != nil {
		return err
	}
	if b.kubeconfig, err = c.ServiceAccountKubeconfig(ctx, namespace, account); err != nil {
		return err
	}
	if err := b.driver.Start(b.socket()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.driver.Stop()) }()
	if err := b.createClass(ctx); err != nil {
		return err
	}
	return f(ctx, b)
}

func (b *bench) socket() string { return filepath.Join(b.cluster.Dir, "csi.sock") }

// start runs csi-provisioner with its default flags.
func (b *bench) start() (*cluster.Process, error) {
	return cluster.StartProcess(b.cluster.Dir, "csi-provisioner", b.provisioner,
		"--csi-address="+b.socket(), "--kubeconfig="+b.kubeconfig, "--leader-election-namespace="+namespace, "-v=2")
}

// stop ends it as a rollout does.
func stop(process *cluster.Process) error {
	select {
	case <-process.Exited():
		return fmt.Errorf("it has ended by itself: %s", process.Tail())
	default:
		return process.Stop(stopGrace)
	}
}

// inParallel runs op for each number below n, as many at once as csi-provisioner
// would.
func inParallel(ctx context.Context, n int, op func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range n {
		group.Go(func() error { return op(ctx, i) })
	}
	return group.Wait()
}

// timed tells how long op took.
func timed(op func() error) (time.Duration, error) {
	began := time.Now()
	err := op()
	return time.Since(began), err
}
