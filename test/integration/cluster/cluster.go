// Package cluster runs a Kubernetes control plane without nodes on this machine:
// etcd, kube-apiserver with RBAC, and the part of kube-controller-manager that
// binds volumes to claims. All of it listens on loopback, on ports that are free,
// and keeps its files in one temporary directory.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	adminToken = "admin"
	loopback   = "127.0.0.1"

	pollInterval = 50 * time.Millisecond
	stopGrace    = 5 * time.Second
)

// Cluster is a control plane.
type Cluster struct {
	// Dir holds all its files; it is gone after Stop.
	Dir string
	// Binary is the multi-call program it was started from.
	Binary string
	// Admin may do everything.
	Admin kubernetes.Interface

	server    string
	caFile    string
	processes []*Process // in the order they were started
}

// Start starts a cluster from the multi-call binary that `lab build` makes. It
// returns when the API server is ready; on an error nothing keeps running. args are
// added to the API server's own.
func Start(ctx context.Context, binary string, args ...string) (*Cluster, error) {
	c, err := StartAPIServer(ctx, binary, args...)
	if err != nil {
		return nil, err
	}
	if err := c.StartControllers(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// StartAPIServer is Start without the controllers: nothing changes an object but
// its callers.
func StartAPIServer(ctx context.Context, binary string, args ...string) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "integration-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: dir, Binary: binary}
	if err := c.start(ctx, args); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, args []string) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	if err := c.writeSecrets(); err != nil {
		return err
	}
	etcd := fmt.Sprintf("http://%s:%d", loopback, ports[0])
	if err := c.run("etcd", etcdArgs(c.Dir, etcd, fmt.Sprintf("http://%s:%d", loopback, ports[1]))); err != nil {
		return err
	}
	c.server = fmt.Sprintf("https://%s:%d", loopback, ports[2])
	if err := c.run("kube-apiserver", append(apiserverArgs(c.Dir, etcd, ports[2]), args...)); err != nil {
		return err
	}
	c.caFile = filepath.Join(c.Dir, "certs", "apiserver.crt")
	if err := c.await(ctx, "the API server's certificate", func(context.Context) error {
		_, err := os.Stat(c.caFile)
		return err
	}); err != nil {
		return err
	}
	if c.Admin, err = kubernetes.NewForConfig(c.Config(adminToken)); err != nil {
		return err
	}
	return c.await(ctx, "the API server", func(ctx context.Context) error {
		return c.Admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// StartControllers adds kube-controller-manager; args are added to its own.
func (c *Cluster) StartControllers(args ...string) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	kubeconfig, err := c.Kubeconfig("admin", adminToken)
	if err != nil {
		return err
	}
	return c.run("kube-controller-manager", append(controllerManagerArgs(kubeconfig, ports[0]), args...))
}

// AdminConfig may do everything.
func (c *Cluster) AdminConfig() *rest.Config { return c.Config(adminToken) }

// Stop ends everything and removes the files.
func (c *Cluster) Stop() error {
	var failures []error
	for _, process := range slices.Backward(c.processes) {
		failures = append(failures, process.Stop(stopGrace))
	}
	return errors.Join(append(failures, os.RemoveAll(c.Dir))...)
}

// Config is for whoever has the token.
func (c *Cluster) Config(token string) *rest.Config {
	return &rest.Config{
		Host:            c.server,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.caFile},
		// No limit on this side.
		QPS: -1,
	}
}

func (c *Cluster) run(name string, args []string) error {
	process, err := StartProcess(c.Dir, name, c.Binary, append([]string{name}, args...)...)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, process)
	return nil
}

// await repeats check until it succeeds, ctx ends or a process dies.
func (c *Cluster) await(ctx context.Context, what string, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		for _, process := range c.processes {
			select {
			case <-process.Exited():
				return fmt.Errorf("waiting for %s: a process has died: %s", what, process.Tail())
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w, last: %w; %s", what, ctx.Err(), err, c.processes[len(c.processes)-1].Tail())
		case <-time.After(pollInterval):
		}
	}
}

// freePorts are held at the same time, so that no two are the same.
func freePorts(count int) ([]int, error) {
	ports := make([]int, count)
	for i := range ports {
		listener, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
