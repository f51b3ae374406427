// Package node runs a Kubernetes cluster of one node inside the guest: etcd,
// the control plane, containerd and the kubelet, as processes of the guest.
package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// BinDir is where the node's programs are linked.
	BinDir = "/run/lab/bin"
	// Name of the node.
	Name = "lab"
	// Address of the node, and of the NFS server as pods reach it.
	Address = "10.64.0.1"

	serviceAddress = "10.96.0.1" // of the API server, the first of the service range
	serviceRange   = "10.96.0.0/16"
	podRange       = "10.88.0.0/16"

	stateDir = "/run/lab"
	// AdminKubeconfig is the cluster administrator's.
	AdminKubeconfig = stateDir + "/admin.kubeconfig"
)

// Config says what to run.
type Config struct {
	Kube   string   // the multi-call binary of ../../kube
	Images []string // archives to import into containerd
	LogDir string   // one log a component
	Disk   string   // the block device that holds the node's state
	// Reached is called with each thing that is there on the way to a Ready node.
	Reached func(what string)
}

var programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"}

// Node is a running cluster.
type Node struct {
	components []*component
}

// Start prepares the machine, starts every component and returns when the node
// is Ready and its images are there.
func Start(ctx context.Context, c Config) (*Node, error) {
	for _, step := range []func(Config) error{linkPrograms, mountState, setUpNetwork, writeCPUInfo, delegateCgroups} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	creds, err := issue(stateDir)
	if err != nil {
		return nil, fmt.Errorf("issue certificates: %w", err)
	}
	if err := writeConfigs(); err != nil {
		return nil, err
	}
	n := &Node{}
	if err := n.boot(ctx, c, creds); err != nil {
		n.Stop()
		return nil, err
	}
	return n, nil
}

func (n *Node) boot(ctx context.Context, c Config, creds *credentials) error {
	base, clients := specs()
	if err := n.startAll(base, c.LogDir); err != nil {
		return err
	}
	api := newAPI(creds)
	defer api.CloseIdleConnections()
	if err := n.poll(ctx, "the API server", func(ctx context.Context) error { return get(ctx, api, "/readyz", nil) }); err != nil {
		return err
	}
	c.Reached("the API server answers")
	if err := n.startAll(clients, c.LogDir); err != nil {
		return err
	}
	if err := n.importImages(ctx, c.Images); err != nil {
		return err
	}
	c.Reached("images are imported")
	if err := n.poll(ctx, "the node to be Ready", func(ctx context.Context) error { return usable(ctx, api) }); err != nil {
		return err
	}
	c.Reached("the node is Ready")
	return nil
}

func (n *Node) startAll(specs []spec, logDir string) error {
	for _, s := range specs {
		started, err := s.start(logDir)
		if err != nil {
			return err
		}
		n.components = append(n.components, started)
	}
	return nil
}

// Stop ends every component, the last started first.
func (n *Node) Stop() {
	for i := len(n.components) - 1; i >= 0; i-- {
		n.components[i].kill()
	}
}

func linkPrograms(c Config) error {
	if err := os.MkdirAll(BinDir, 0o755); err != nil {
		return err
	}
	for _, p := range programs {
		if err := os.Symlink(c.Kube, filepath.Join(BinDir, p)); err != nil {
			return err
		}
	}
	return nil
}
