package provisioner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRefusedClaimsMakeNoVolume(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.createClaim(testClaim("restored", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "monday"}
	}))
	w.createClaim(testClaim("choosy", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Selector = &metav1.LabelSelector{}
	}))
	w.awaitEvent("ProvisioningFailed", `VolumeSnapshot "monday"`)
	w.awaitEvent("ProvisioningFailed", "selector")
	w.createClaim(testClaim("plain"))
	w.awaitVolume("pvc-uid-plain")
	if volumes := w.driver.Volumes(); len(volumes) != 1 {
		t.Errorf("there are volumes %v", volumes)
	}
}

func TestWaitForFirstConsumer(t *testing.T) {
	class := testClass(nil)
	class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	w := newWorld(t, nil, class)
	w.createClaim(testClaim("waiting"))
	w.createClaim(testClaim("scheduled", func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations["volume.kubernetes.io/selected-node"] = "node-1"
	}))
	w.awaitVolume("pvc-uid-scheduled")
	if volumes := w.driver.Volumes(); len(volumes) != 1 {
		t.Errorf("there are volumes %v, one claim is still waiting for its pod", volumes)
	}
}

func TestForeignClaimsAreLeftAlone(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.createClaim(testClaim("foreign", func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations["volume.kubernetes.io/storage-provisioner"] = "other.example"
	}))
	w.createClaim(testClaim("ours"))
	w.awaitVolume("pvc-uid-ours")
	if volumes := w.driver.Volumes(); len(volumes) != 1 {
		t.Errorf("there are volumes %v", volumes)
	}
}
