package integration

import (
	"errors"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The controller-manager leaves the claims of an in-tree plugin's class to the CSI
// driver that has taken over from it, and their volumes to that driver's deletion.
func TestMigration(t *testing.T) {
	w := build(t)
	w.driverName = "cinder.csi.openstack.org"
	t.Parallel()
	w.setUp(func(class *storagev1.StorageClass) {
		class.Provisioner = "kubernetes.io/cinder"
		class.Parameters = map[string]string{"type": "ssd", "fsType": "xfs"}
	})
	r := w.start()
	w.createClaim("data")
	volume := w.awaitBound("data")
	if source := volume.Spec.Cinder; source == nil || source.VolumeID != "id-of-"+volume.Name || source.FSType != "xfs" {
		t.Errorf("saved is %v", volume.Spec.PersistentVolumeSource)
	}
	if got := w.driver.Creates()[0].GetParameters(); len(got) != 1 || got["type"] != "ssd" {
		t.Errorf("the driver was told %v", got)
	}
	w.eventually("the volume is left to the driver", func() error {
		got, err := w.client.CoreV1().PersistentVolumes().Get(t.Context(), volume.Name, metav1.GetOptions{})
		if err == nil && got.Annotations["pv.kubernetes.io/migrated-to"] != w.driverName {
			err = errors.New("not yet")
		}
		return err
	})
	w.deleteClaim("data")
	w.awaitVolumeGone(volume.Name)
	if left := w.driver.Volumes(); len(left) != 0 {
		t.Errorf("the driver has %v", left)
	}
	calls := `csi_sidecar_operations_seconds_count{driver_name="` + w.driverName + `",grpc_status_code="OK",`
	w.awaitMetrics(r,
		calls+`method_name="/csi.v1.Controller/CreateVolume",migrated="true"} 1`,
		calls+`method_name="/csi.v1.Controller/DeleteVolume",migrated="true"} 1`,
		calls+`method_name="/csi.v1.Identity/Probe",migrated="false"}`,
	)
}
