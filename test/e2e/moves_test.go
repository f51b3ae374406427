package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMoveFromNFSSubdir moves a class and a volume of nfs-subdir-external-provisioner by the
// commands of docs/migrate.md.
func TestMoveFromNFSSubdir(t *testing.T) {
	needsCluster(t)
	if err := use(t.Context(), manifestsDir, driverName); err != nil {
		t.Fatal(err)
	}
	e := newEnvWithoutDriver(t, os.Getenv("LAB_EXPORT_XFS"), metav1.ObjectMeta{Name: "apps"})
	e.apply("nfs-subdir/class.yaml")
	t.Cleanup(func() { e.deleteObject("storageclass", "nfs-client") })
	data := e.legacyVolumes("nfs-subdir/volumes.yaml")[0]
	e.waitClaim(data.Claim, data.Name)

	w := e.newWalk()
	w.do(t, "### Redirect new claims")
	made := e.createClaimAs(metav1.ObjectMeta{Name: "made"}, "nfs-client", resource.MustParse(claimSize), nil)
	dir := "apps-made-" + e.waitBound(made).Name
	e.expectDirectories(data.Dir, dir)

	w.do(t, "### Move a volume")
	t.Cleanup(func() { e.deleteObject("pv", "data-moved") })
	e.finishPod(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: data.Claim}},
		`grep -qx "data of data" /data/file && echo now >/data/added`)
	e.mustRead(data.Dir, "added", "now\n")
	e.request(data.Claim, "2Gi")
	e.waitSize(data.Claim, "data-moved", "2Gi")
	cloned := e.createClaimAs(metav1.ObjectMeta{Name: "cloned"}, "nfs-client", resource.MustParse("2Gi"),
		&corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: data.Claim})
	clone := "apps-cloned-" + e.waitBound(cloned).Name
	e.mustRead(clone, "file", data.Content())

	e.deleteClaim(made)
	e.deleteClaim(cloned)
	e.expectDirectories(data.Dir, "archived-"+dir, "archived-"+clone)
	e.mustRead(data.Dir, "file", data.Content())
}

// expectDirectories fails the test unless the export has these, and no others.
func (e *env) expectDirectories(names ...string) {
	e.t.Helper()
	if got, want := sorted(e.directories()), sorted(names); !slices.Equal(got, want) {
		e.t.Errorf("the export has %q, want %q", got, want)
	}
}

// deleteObject deletes an object of the cluster when a test ends. A PersistentVolume goes once
// the namespace with its claim is gone.
func (e *env) deleteObject(kind, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if err := kubectl(ctx, "delete", "--wait=false", "--ignore-not-found", kind, name); err != nil {
		e.t.Error(err)
	}
}

// TestMoveFromExternalProvisioner replaces external-provisioner beside another CSI driver by
// the commands of docs/migrate.md, with its permissions and flags, a claim in flight, and a
// volume that it has created.
func TestMoveFromExternalProvisioner(t *testing.T) {
	needsCluster(t)
	e := newEnvWithoutDriver(t, os.Getenv("LAB_EXPORT_XFS"), metav1.ObjectMeta{Name: "example"})
	t.Cleanup(func() {
		for kind, name := range map[string]string{
			"storageclass": "example", "csidriver": "example.csi.example.com",
			"clusterrole": "example-external-provisioner", "clusterrolebinding": "example-external-provisioner",
		} {
			e.deleteObject(kind, name)
		}
	})
	e.apply("external-provisioner/driver.yaml", "external-provisioner/class.yaml", "external-provisioner/waiting.yaml")
	before := e.legacyVolumes("external-provisioner/volumes.yaml")[0]
	e.waitClaim(before.Claim, before.Name)

	e.newWalk().do(t, "## Migrate from external-provisioner")
	e.expectJournalIn("example", "csi-provisioner.example-csi-example-com.")
	if left := e.directories(); len(left) != 2 {
		t.Errorf("the export has %q, want the volumes of both claims", left)
	}
	e.mustRead(before.Dir, "file", before.Content())
	if err := kubectl(t.Context(), "-n", e.namespace, "delete", "pvc", "--all"); err != nil {
		t.Fatal(err)
	}
	if err := kubectl(t.Context(), "wait", "--for=delete", "--timeout=2m", "pv", before.Name); err != nil {
		t.Fatal(err)
	}
	e.expectOnExport()
	if _, err := os.Stat(filepath.Join(e.export, before.Dir)); !os.IsNotExist(err) {
		t.Errorf("the directory of the deleted volume: %v", err)
	}
}
