package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The cache still has the claim, as one that waits, when the claim and its volume
// are both gone.
func TestClaimDeletedBehindTheCache(t *testing.T) {
	w := newWorld(t)
	g := w.gateAPIServer()
	w.kubeconfig = g.kubeconfig
	entered, open := w.slow()
	r := w.start()
	claim := w.createClaim("data")
	w.receive(entered)
	g.hold("learned-late")
	patch := []byte(`{"metadata":{"labels":{"when":"learned-late"}}}`)
	if _, err := w.client.CoreV1().PersistentVolumeClaims(w.name).Patch(t.Context(), "data", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	open()
	volume := w.awaitBound("data")
	w.deleteClaim("data")
	w.awaitVolumeGone(volume.Name)

	g.hold("pvc-" + string(claim.UID)) // what was changed when the claim was bound
	w.eventually("the claim is looked at", func() error { return logged(r, "the claim is deleted") })
	g.hold("")
	w.createClaim("next")
	w.awaitBound("next")
	if volumes, calls := w.driver.Volumes(), w.driver.Creates(); len(volumes) != 1 || len(calls) != 2 {
		t.Errorf("the driver was called %d times and has %v, want a volume for the second claim", len(calls), volumes)
	}
}

// A list that fails says nothing about who needs a finalizer.
func TestListsThatFail(t *testing.T) {
	for _, resource := range []string{"volumesnapshots", "persistentvolumeclaims"} {
		t.Run(resource, func(t *testing.T) {
			w := newWorld(t)
			w.giveCapabilities()
			w.snapshot(w.name, "orphan", snapshotFinalizer)
			w.snapshot(w.name, "wanted", snapshotFinalizer)
			w.createClaim("restored", fromSnapshot("wanted"))
			w.slowOnly("restored")
			g := w.gateAPIServer()
			w.kubeconfig = g.kubeconfig
			g.fail(resource)
			w.start("--snapshot-orphan-sweep-interval=50ms", "--extra-create-metadata")
			w.awaitFailed(g, 3)
			for _, name := range []string{"orphan", "wanted"} {
				w.expectProtected(name)
			}
			g.fail("")
			w.awaitLetGo("orphan")
			w.expectProtected("wanted")
		})
	}
}
