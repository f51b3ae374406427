// Package e2e holds the tests that need a whole cluster: a kubelet that mounts,
// a kernel NFS server, and the driver as deploy/kubernetes installs it. They run
// inside the lab's guest (make test-e2e) and look at the server's own disk and
// at the node's processes and mounts from there.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	driverName      = "nfs.csi.internal"
	driverNamespace = "nfs-csi"
	controllerName  = "nfs-csi-controller"
	nodeName        = "nfs-csi-node"
	// The driver with the sidecars of Kubernetes CSI: the values there,
	// rendered by `make generate`.
	manifestsDir = "testdata/driver"
	// The cluster's part of snapshots, next to the CRDs at $SNAPSHOT_CRDS.
	snapshotController = "testdata/snapshot-controller.yaml"

	installTimeout = 3 * time.Minute
)

func TestMain(m *testing.M) {
	if os.Getenv("LAB") != "cluster" {
		// newEnv skips every test.
		os.Exit(m.Run())
	}
	if err := prepare(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: install:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// installed is the directory of what the cluster has of the driver.
var installed struct {
	sync.Mutex
	dir string
}

// prepare installs what is beside the driver, for all tests.
func prepare(ctx context.Context) error {
	if err := kubectl(ctx, "apply", "-k", os.Getenv("SNAPSHOT_CRDS")); err != nil {
		return err
	}
	return kubectl(ctx, "apply", "-f", snapshotController)
}

// use has the driver installed from dir and from nowhere else.
func use(ctx context.Context, dir, driver string) error {
	installed.Lock()
	defer installed.Unlock()
	if installed.dir == dir {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	if err := uninstall(ctx); err != nil {
		return err
	}
	installed.dir = dir
	if dir == manifestsDir {
		if err := errors.Join(allowInline(ctx), nameCluster(ctx)); err != nil {
			return err
		}
	}
	return install(ctx, dir, driver)
}

// uninstall deletes what is installed.
func uninstall(ctx context.Context) error {
	if installed.dir == "" {
		return nil
	}
	err := kubectl(ctx, "delete", "-k", installed.dir)
	if err == nil {
		installed.dir = ""
	}
	return err
}

// allowInline says which servers inline volumes may be on, as docs/node.md does.
func allowInline(ctx context.Context) error {
	if err := kubectl(ctx, "apply", "-f", "../../deploy/kubernetes/namespace.yaml"); err != nil {
		return err
	}
	return kubectl(ctx, "-n", driverNamespace, "create", "configmap", "nfs-csi-ephemeral", "--from-literal=servers="+inlineServers())
}

// nameCluster gives the cluster the ID that records get, as docs/install.md does.
func nameCluster(ctx context.Context) error {
	client, err := newClient()
	if err != nil {
		return err
	}
	system, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return kubectl(ctx, "-n", driverNamespace, "create", "configmap", "nfs-csi-cluster", "--from-literal=id="+string(system.UID))
}

// install applies the manifests as a user would and waits for the driver.
func install(ctx context.Context, dir, driver string) error {
	if err := kubectl(ctx, "apply", "-k", dir); err != nil {
		return err
	}
	client, err := newClient()
	if err != nil {
		return err
	}
	if err := poll(ctx, func(ctx context.Context) error { return driverReady(ctx, client, driver) }); err != nil {
		dumpDriver(os.Stderr, client)
		return err
	}
	return nil
}

func kubectl(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, "kubectl", args...)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", command.Args, err, out)
	}
	return nil
}

func newClient() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

// driverReady says what is missing until both workloads are as their
// specification wants them and kubelet knows the driver on every node.
func driverReady(ctx context.Context, client kubernetes.Interface, driver string) error {
	deployment, err := client.AppsV1().Deployments(driverNamespace).Get(ctx, controllerName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := deploymentReady(deployment); err != nil {
		return err
	}
	daemonSet, err := client.AppsV1().DaemonSets(driverNamespace).Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if s := daemonSet.Status; s.ObservedGeneration < daemonSet.Generation || s.NumberReady == 0 || s.NumberReady != s.DesiredNumberScheduled {
		return fmt.Errorf("%s: %d of %d pods are ready", nodeName, s.NumberReady, s.DesiredNumberScheduled)
	}
	nodes, err := client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		registered := false
		for _, known := range node.Spec.Drivers {
			registered = registered || known.Name == driver
		}
		if !registered {
			return fmt.Errorf("kubelet of node %s does not know %s", node.Name, driver)
		}
	}
	return nil
}

func deploymentReady(d *appsv1.Deployment) error {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	s := d.Status
	if s.ObservedGeneration < d.Generation || s.ReadyReplicas != want || s.UpdatedReplicas != want || s.Replicas != want {
		return fmt.Errorf("%s: %d of %d pods are ready, %d exist", d.Name, s.ReadyReplicas, want, s.Replicas)
	}
	return nil
}
