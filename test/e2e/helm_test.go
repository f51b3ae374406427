package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nfs-csi/nfs-csi/test/chart/helm"
)

const (
	chartDir = "../../deploy/helm/nfs-csi"
	// A second installation, beside that of all tests.
	secondDriver = "second.csi.internal"
	secondValues = `
driver: {name: second.csi.internal}
controller: {replicas: 1}
node: {plugin: {port: 9819}}
storageClasses:
  - {name: %s, parameters: {server: %q, share: %s}}
`
)

// TestHelm installs a second driver with helm, upgrades it and rolls it back under a pod
// that writes, and uninstalls it: the class and the other driver stay.
func TestHelm(t *testing.T) {
	e := newEnv(t)
	release := e.namespace + "-nfs-csi"
	class := e.namespace + "-helm"
	client, err := helm.New(os.Getenv("KUBECONFIG"), release, true)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(client.Install(t.Context(), release, chartDir, fmt.Sprintf(secondValues, class, e.server, e.export)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		// After a failure only.
		_ = client.Uninstall(release)
		if err := kubectl(ctx, "delete", "--ignore-not-found", "storageclass/"+class, "namespace/"+release); err != nil {
			t.Error(err)
		}
	})
	e.eventually("both drivers are registered", func(ctx context.Context) error { return e.registered(ctx, driverName, secondDriver) })
	must(client.Test(release))
	e.expectOnExport()

	claim := e.createClaim(class)
	volume := e.waitBound(claim)
	writer := e.startPod(claim, "while echo now >>/data/log; do sleep 0.2; done")
	e.waitPhase(writer, corev1.PodRunning)
	log := filepath.Join(e.export, volume.Name, "log")
	must(client.Upgrade(t.Context(), release, chartDir, "log: {level: 4}\nresizer: {enabled: true}"))
	e.waitGrowth(log, size(t, log))
	must(client.Rollback(release))
	e.waitGrowth(log, size(t, log))
	e.expectNeverRestarted(writer)
	e.deletePods(writer)
	e.deleteClaim(claim)
	e.expectOnExport()

	must(client.Uninstall(release))
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	left, err := helm.Labelled(t.Context(), config, "app.kubernetes.io/instance="+release)
	must(err)
	if !slices.Equal(left, []string{"StorageClass " + class}) {
		t.Errorf("after the deletion, there are %q", left)
	}
	must(e.registered(t.Context(), driverName))
}

// registered checks that kubelet knows the drivers.
func (e *env) registered(ctx context.Context, drivers ...string) error {
	nodes, err := e.client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		var known []string
		for _, d := range node.Spec.Drivers {
			known = append(known, d.Name)
		}
		for _, d := range drivers {
			if !slices.Contains(known, d) {
				return fmt.Errorf("node %s knows %q", node.Name, known)
			}
		}
	}
	return nil
}
