package provisioner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRefusedClaimsMakeNoVolume(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.createClaim(testClaim("populated", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("example.com"), Kind: "Backup", Name: "monday"}
	}))
	w.createClaim(testClaim("restored", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "monday"}
	}))
	w.createClaim(testClaim("golden", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.VolumeAttributesClassName = new("gold")
	}))
	w.createClaim(testClaim("choosy", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Selector = &metav1.LabelSelector{}
	}))
	w.awaitEvent("Provisioning", "Waiting for the volume populator")
	w.awaitEvent("ProvisioningFailed", "CSI driver nfs.example does not declare CREATE_DELETE_SNAPSHOT")
	w.awaitEvent("ProvisioningFailed", "CSI driver nfs.example does not declare MODIFY_VOLUME")
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
