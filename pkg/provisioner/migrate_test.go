package provisioner

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
)

const (
	cinderDriver = "cinder.csi.openstack.org"
	cinderPlugin = "kubernetes.io/cinder"
	migratedTo   = "pv.kubernetes.io/migrated-to"
)

// newMigratedWorld has the driver that has taken over Cinder's volumes, and a class of
// the in-tree plugin.
func newMigratedWorld(t *testing.T) *world {
	t.Helper()
	class := testClass(map[string]string{"type": "ssd", "fsType": "xfs"})
	class.Provisioner, class.MountOptions = cinderPlugin, nil
	return newWorldOf(t, drivertest.New(cinderDriver), nil, class)
}

// migrated is a claim as the controller-manager leaves it to the driver.
func migrated(claim *corev1.PersistentVolumeClaim) {
	claim.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": cinderDriver, migratedTo: cinderDriver}
}

func TestMigratedVolume(t *testing.T) {
	w := newMigratedWorld(t)
	w.createClaim(testClaim("data", migrated))
	volume := w.awaitVolume("pvc-uid-data")
	if volume.Spec.CSI != nil || volume.Spec.Cinder == nil || volume.Spec.Cinder.VolumeID != "id-of-pvc-uid-data" || volume.Spec.Cinder.FSType != "xfs" {
		t.Errorf("saved is %v", volume.Spec.PersistentVolumeSource)
	}
	if got := volume.Annotations["pv.kubernetes.io/provisioned-by"]; got != cinderPlugin {
		t.Errorf("it says it was made by %s", got)
	}
	request := w.driver.Creates()[0]
	if got := request.GetParameters(); len(got) != 1 || got["type"] != "ssd" {
		t.Errorf("the driver was told %v", got)
	}
	volume.Annotations[migratedTo] = cinderDriver
	volume, err := w.client.CoreV1().PersistentVolumes().Update(t.Context(), volume, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.deleteClaim("data")
	w.release(volume.Name)
	w.awaitGone(volume.Name)
	if left := w.driver.Volumes(); len(left) != 0 {
		t.Errorf("the driver has %v", left)
	}
}

// What the controller-manager has not left to the driver is not the driver's.
func TestPluginsOwnVolumesAreLeftAlone(t *testing.T) {
	w := newMigratedWorld(t)
	w.createClaim(testClaim("plugins", func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": cinderPlugin}
	}))
	plugins := releasedVolume("plugins-volume", func(volume *corev1.PersistentVolume) {
		volume.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": cinderPlugin}
		volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "v"}}
	})
	left := plugins.DeepCopy()
	left.Name, left.UID, left.Annotations[migratedTo] = "left-volume", "left", cinderDriver
	left.Spec.Cinder.VolumeID = "left"
	for _, volume := range []*corev1.PersistentVolume{plugins, left} {
		if _, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.createClaim(testClaim("data", migrated))
	w.awaitVolume("pvc-uid-data")
	w.awaitGone("left-volume")
	if calls := w.driver.Deletes(); len(calls) != 1 || calls[0].GetVolumeId() != "left" {
		t.Errorf("the driver was told to delete %v", calls)
	}
	if calls := w.driver.Creates(); len(calls) != 1 {
		t.Errorf("the driver was asked for %v", calls)
	}
	if w.volume("plugins-volume") == nil {
		t.Error("the plugin's volume is gone")
	}
}

func TestMigratedVolumeIsFollowedUp(t *testing.T) {
	w := newMigratedWorld(t)
	w.dieAfterCreate(testClaim("data", migrated))
	w.deleteClaim("data")
	w.run()
	if volume := w.awaitVolume("pvc-uid-data"); volume.Spec.Cinder == nil {
		t.Errorf("saved is %v", volume.Spec.PersistentVolumeSource)
	}
}

// The driver returns a volume for a second claim that a PersistentVolume of the plugin
// uses.
func TestMigratedVolumeInUseIsNotDiscarded(t *testing.T) {
	w := newMigratedWorld(t)
	w.createClaim(testClaim("data", migrated))
	w.awaitVolume("pvc-uid-data")
	w.driver.OnCreate(givesAway("id-of-pvc-uid-data"))
	w.createClaim(testClaim("second", migrated))
	w.awaitEvent("ProvisioningFailed", "PersistentVolume pvc-uid-data is for the same volume")
	if calls := w.driver.Deletes(); len(calls) != 0 {
		t.Errorf("the driver was told to delete %v", calls)
	}
}

// givesAway returns a volume with that ID that is too small to be used.
func givesAway(id string) drivertest.CreateHook {
	return func(context.Context, *csi.CreateVolumeRequest, func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: 1}}, nil
	}
}
