package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// patchSnapshot changes a snapshot, or its content.
func (w *world) patchSnapshot(content bool, name, patch string) {
	w.Helper()
	object := w.dynamic().Resource(snapshots).Namespace(w.name)
	if content {
		object, name = w.dynamic().Resource(contents), "content-"+w.name+"-"+name
	}
	if _, err := object.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// What cannot be restored is said before the driver is asked, and restored when it
// can be.
func TestSnapshotsThatCannotBeRestored(t *testing.T) {
	w := newWorld(t)
	w.giveCapabilities()
	w.start("--retry-interval-max=200ms")
	tests := map[string]struct {
		content     bool
		spoil, mend string
		want        string
	}{
		"not-ready": {
			spoil: `{"status":{"readyToUse":false}}`, mend: `{"status":{"readyToUse":true}}`,
			want: "it is not ready to use yet",
		},
		"unbound": {
			spoil: `{"status":{"boundVolumeSnapshotContentName":null}}`,
			mend:  `{"status":{"boundVolumeSnapshotContentName":"content-` + w.name + `-unbound"}}`,
			want:  "it is not bound to a VolumeSnapshotContent yet",
		},
		"foreign": {
			content: true, spoil: `{"spec":{"driver":"other.example"}}`, mend: `{"spec":{"driver":"` + w.driverName + `"}}`,
			want: "it belongs to CSI driver other.example",
		},
		"larger": {
			spoil: `{"status":{"restoreSize":"2Gi"}}`, mend: `{"status":{"restoreSize":"1Gi"}}`,
			want: "it needs 2147483648 bytes",
		},
		"mode": {
			content: true, spoil: `{"spec":{"sourceVolumeMode":"Block"}}`,
			mend: `{"metadata":{"annotations":{"snapshot.storage.kubernetes.io/allow-volume-mode-change":"true"}}}`,
			want: "its volume mode is Block",
		},
	}
	for name, test := range tests {
		w.snapshot(w.name, name)
		w.patchSnapshot(test.content, name, test.spoil)
		w.createClaim(name, fromSnapshot(name))
		w.awaitEvent(name, "ProvisioningFailed", test.want)
		if calls := w.driver.Creates(); len(calls) != 0 {
			t.Errorf("%s: the driver was asked for %v", name, calls)
		}
	}
	for name, test := range tests {
		w.patchSnapshot(test.content, name, test.mend)
		w.awaitBound(name)
	}
}

func TestClaimsThatCannotBeCloned(t *testing.T) {
	w := newWorld(t)
	w.giveCapabilities()
	w.start("--retry-interval-max=200ms")
	w.createClaim("source")
	w.awaitBound("source")
	w.createClaim("block", asBlock)
	w.awaitBound("block")
	asked := len(w.driver.Creates())
	smaller := func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Mi")
	}
	for name, test := range map[string]struct {
		source string
		change func(*corev1.PersistentVolumeClaim)
		want   string
	}{
		"missing": {"nothing", func(*corev1.PersistentVolumeClaim) {}, `"nothing" not found`},
		"smaller": {"source", smaller, "it has 1073741824 bytes"},
		"mode":    {"block", func(*corev1.PersistentVolumeClaim) {}, "one of the two is a block volume"},
	} {
		w.createClaim(name, fromClaim(test.source), test.change)
		w.awaitEvent(name, "ProvisioningFailed", test.want)
	}
	if calls := len(w.driver.Creates()); calls != asked {
		t.Errorf("the driver was asked %d times more", calls-asked)
	}
}

// Whoever turns the check off means it.
func TestModeConversionIsAllowed(t *testing.T) {
	w := newWorld(t)
	w.giveCapabilities()
	w.snapshot(w.name, "block")
	w.patchSnapshot(true, "block", `{"spec":{"sourceVolumeMode":"Block"}}`)
	w.start("--prevent-volume-mode-conversion=false")
	w.createClaim("filesystem", fromSnapshot("block"))
	w.awaitBound("filesystem")
}
