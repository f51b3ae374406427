package provisioner

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
)

func attachment(name, driver, volume string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, NodeName: "node-1",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}
}

func attachingDriver() *drivertest.Driver {
	driver := drivertest.New(driverName)
	driver.SetCapabilities(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	return driver
}

func TestAttachedVolumeIsNotDeleted(t *testing.T) {
	w := newWorldOf(t, attachingDriver(), nil,
		attachment("csi-1", driverName, "pvc-1"),
		attachment("csi-2", "other.example", "pvc-2"),
		releasedVolume("pvc-1"), releasedVolume("pvc-2"))
	w.awaitGone("pvc-2")
	w.awaitEvent("VolumeFailedDelete", "volume is still attached: VolumeAttachment csi-1 to node node-1")
	for _, request := range w.driver.Deletes() {
		if request.GetVolumeId() == "id-of-pvc-1" {
			t.Fatal("the driver was told to delete a volume that is attached")
		}
	}
	if err := w.client.StorageV1().VolumeAttachments().Delete(t.Context(), "csi-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitGone("pvc-1")
}
