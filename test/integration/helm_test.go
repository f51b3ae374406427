package integration

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/test/chart"
	"github.com/nfs-csi/nfs-csi/test/chart/helm"
)

// helmed is a release of the chart in the shared cluster.
type helmed struct {
	*testing.T
	*helm.Client
	release chart.Release
}

// newHelmed has a driver name of its own, as each installation must.
func newHelmed(t *testing.T, name string) helmed {
	t.Helper()
	if shared == nil {
		t.Skipf("needs %s and %s", kubeBinaryEnv, provisionerEnv)
	}
	kubeconfig, err := shared.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := helm.New(kubeconfig, name, false)
	if err != nil {
		t.Fatal(err)
	}
	return helmed{T: t, Client: client, release: chart.Release{Name: name, Namespace: name}}
}

func (h helmed) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h helmed) objects() []string {
	h.Helper()
	found, err := helm.Labelled(context.Background(), shared.AdminConfig(), "app.kubernetes.io/instance="+h.release.Name)
	h.must(err)
	return found
}

func (h helmed) containers() []string {
	h.Helper()
	d, err := shared.Admin.AppsV1().Deployments(h.release.Namespace).Get(h.Context(), h.release.Name+"-controller", metav1.GetOptions{})
	h.must(err)
	var names []string
	for _, c := range d.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

// TestHelmRelease: a release is installed, upgraded, rolled back and uninstalled beside
// another one, and leaves its classes.
func TestHelmRelease(t *testing.T) {
	first, second := newHelmed(t, "first-nfs-csi"), newHelmed(t, "second-nfs-csi")
	class := "storageClasses: [{name: first, parameters: {server: nas.example.com, share: /srv}}]"
	first.must(first.Install(t.Context(), first.release.Name, chartDir, "driver: {name: first.csi.internal}\n"+class))
	second.must(second.Install(t.Context(), second.release.Name, chartDir, "driver: {name: second.csi.internal}\nnode: {plugin: {port: 9819}}"))
	installed, beside := first.objects(), second.objects()
	plain := first.containers()

	first.must(first.Upgrade(t.Context(), first.release.Name, chartDir, "resizer: {enabled: true}"))
	if got := first.containers(); len(got) != len(plain)+1 || !slices.Contains(got, "csi-resizer") {
		t.Errorf("after the upgrade, the containers are %q", got)
	}
	if got := first.objects(); !slices.Contains(got, "ClusterRole first-nfs-csi-resizer") || !slices.Contains(got, "StorageClass first") {
		t.Errorf("after the upgrade, there are %q", got)
	}
	if err := first.Upgrade(t.Context(), first.release.Name, chartDir, "resizer: {enable: false}"); err == nil || !strings.Contains(err.Error(), "at '/resizer'") {
		t.Errorf("upgrade with an unknown value: %v", err)
	}

	first.must(first.Rollback(first.release.Name))
	if got := first.containers(); !slices.Equal(got, plain) {
		t.Errorf("after the rollback, the containers are %q", got)
	}
	if got := first.objects(); !slices.Equal(got, installed) {
		t.Errorf("after the rollback, there are %q, before %q", got, installed)
	}

	first.must(first.Uninstall(first.release.Name))
	if got := first.objects(); !slices.Equal(got, []string{"StorageClass first"}) {
		t.Errorf("after the deletion, there are %q", got)
	}
	if got := second.objects(); !slices.Equal(got, beside) {
		t.Errorf("of the other release, there are %q, before %q", got, beside)
	}

	// The class that was kept belongs to the release again.
	first.must(first.Install(t.Context(), first.release.Name, chartDir, "driver: {name: first.csi.internal}\n"+class))
	if got := first.objects(); !slices.Equal(got, installed) {
		t.Errorf("after the second installation, there are %q, before %q", got, installed)
	}
	first.must(first.Uninstall(first.release.Name))
	second.must(second.Uninstall(second.release.Name))
	if got := second.objects(); len(got) != 0 {
		t.Errorf("of the second release, there are %q", got)
	}
}

// TestHelmTakesOver what kubectl has installed, and changes it.
func TestHelmTakesOver(t *testing.T) {
	h := newHelmed(t, "applied-nfs-csi")
	const name = "driver: {name: applied.csi.internal}"
	manifests, err := chart.Manifests(chartDir, h.release, name)
	h.must(err)
	dir := t.TempDir()
	h.must(os.WriteFile(filepath.Join(dir, "nfs-csi.yaml"), manifests, 0o600))
	h.must(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: [nfs-csi.yaml]\n"), 0o600))
	h.must(shared.Apply(t.Context(), dir))

	if err := h.Install(t.Context(), h.release.Name, chartDir, name); err == nil || !strings.Contains(err.Error(), "ownership") {
		t.Errorf("installation without --take-ownership: %v", err)
	}
	h.must(h.Adopt(t.Context(), h.release.Name, chartDir, name+"\nresizer: {enabled: true}"))
	if got := h.containers(); !slices.Contains(got, "csi-resizer") {
		t.Errorf("the containers are %q", got)
	}
	h.must(h.Uninstall(h.release.Name))
	if got := h.objects(); !slices.Equal(got, []string{"Namespace applied-nfs-csi"}) {
		t.Errorf("after the deletion, there are %q", got)
	}
}
