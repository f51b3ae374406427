package provisioner

import (
	"net/http"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
)

// newModifyWorld has an API server that serves VolumeAttributesClasses in no version of
// storage.k8s.io but this, and a class in that version.
func newModifyWorld(t *testing.T, version string) *world {
	t.Helper()
	driver := drivertest.New(driverName)
	driver.SetCapabilities(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	w := newWorldOf(t, driver, nil, testClass(nil), &storagev1beta1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: driverName, Parameters: map[string]string{"mode": "0700"},
	})
	prepend(w.client, "get", "volumeattributesclasses", func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource := action.GetResource()
		if resource.Version == version {
			return false, nil, nil
		}
		// The API server's answer to the path of an API that does not exist is no Status.
		return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource.GroupResource(), "gold", "404 page not found", 0, true)
	})
	return w
}

func golden(name string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeAttributesClassName = &name }
}

func TestAttributesClassOfAnOlderAPIServer(t *testing.T) {
	w := newModifyWorld(t, "v1beta1")
	w.createClaim(testClaim("absent", golden("silver")))
	w.awaitEvent("ProvisioningFailed", `read VolumeAttributesClass silver: volumeattributesclasses.storage.k8s.io "silver" not found`)
	w.createClaim(testClaim("data", golden("gold")))
	volume := w.awaitVolume("pvc-uid-data")
	if got := volume.Spec.VolumeAttributesClassName; got == nil || *got != "gold" {
		t.Errorf("the volume's class is %v", got)
	}
	if got := w.driver.Creates()[0].GetMutableParameters()["mode"]; got != "0700" {
		t.Errorf("the driver got mode %q", got)
	}
}

func TestAttributesClassIsNotServed(t *testing.T) {
	w := newModifyWorld(t, "none")
	w.createClaim(testClaim("data", golden("gold")))
	w.awaitEvent("ProvisioningFailed", "serves the kind neither in storage.k8s.io/v1 nor in v1beta1")
	if calls := w.driver.Creates(); len(calls) != 0 {
		t.Errorf("the driver was asked: %v", calls)
	}
}
