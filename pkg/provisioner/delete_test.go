package provisioner

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
)

const (
	deletionSecretName      = "volume.kubernetes.io/provisioner-deletion-secret-name"
	deletionSecretNamespace = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
	provisionedBy           = "pv.kubernetes.io/provisioned-by"
)

// releasedVolume is one whose claim is gone.
func releasedVolume(name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Annotations: map[string]string{
				provisionedBy:           driverName,
				deletionSecretName:      "",
				deletionSecretNamespace: "",
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              "fast",
			ClaimRef:                      &corev1.ObjectReference{Namespace: "team-a", Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "id-of-" + name},
			},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	}
	for _, apply := range change {
		apply(volume)
	}
	return volume
}

func (w *world) awaitGone(name string) {
	w.Helper()
	eventually(w.T, "volume "+name+" is gone", func() bool { return w.volume(name) == nil })
}

func TestReleasedVolumeIsDeleted(t *testing.T) {
	w := newWorld(t, nil, releasedVolume("pvc-1"))
	w.awaitGone("pvc-1")
	if deletes := w.driver.Deletes(); deletes[0].GetVolumeId() != "id-of-pvc-1" || len(deletes[0].GetSecrets()) != 0 {
		t.Errorf("deleted %v", deletes)
	}
}

func TestDeleteIsRetried(t *testing.T) {
	w := newWorld(t, nil)
	var calls atomic.Int32
	w.driver.OnDelete(func(_ context.Context, _ *csi.DeleteVolumeRequest, next func() (*csi.DeleteVolumeResponse, error)) (*csi.DeleteVolumeResponse, error) {
		if call := calls.Add(1); call <= 20 { // more than the library's default threshold
			return nil, status.Error(codes.FailedPrecondition, "still published")
		}
		return next()
	})
	if _, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), releasedVolume("pvc-1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitEvent("VolumeFailedDelete", "DeleteVolume of CSI driver nfs.example: FailedPrecondition: still published")
	w.awaitGone("pvc-1")
}

func TestVolumesThatAreNotOursToDelete(t *testing.T) {
	kept := []*corev1.PersistentVolume{
		releasedVolume("retained", func(volume *corev1.PersistentVolume) {
			volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}),
		releasedVolume("bound", func(volume *corev1.PersistentVolume) { volume.Status.Phase = corev1.VolumeBound }),
		releasedVolume("foreign", func(volume *corev1.PersistentVolume) { volume.Annotations[provisionedBy] = "other.example" }),
		releasedVolume("foreign-source", func(volume *corev1.PersistentVolume) { volume.Spec.CSI.Driver = "other.example" }),
		releasedVolume("nfs-source", func(volume *corev1.PersistentVolume) {
			volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
				NFS: &corev1.NFSVolumeSource{Server: "a", Path: "/b"},
			}
		}),
		releasedVolume("no-handle", func(volume *corev1.PersistentVolume) { volume.Spec.CSI.VolumeHandle = "" }),
	}
	w := newWorld(t, nil)
	for _, volume := range kept {
		if _, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), releasedVolume("ours"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitGone("ours")
	w.awaitEvent("VolumeFailedDelete", "no-handle has no volume handle")
	for _, volume := range kept {
		if w.volume(volume.Name) == nil {
			t.Errorf("%s was deleted", volume.Name)
		}
	}
	for _, request := range w.driver.Deletes() {
		if request.GetVolumeId() != "id-of-ours" {
			t.Errorf("the driver was told to delete %q", request.GetVolumeId())
		}
	}
}

func TestDeletionSecrets(t *testing.T) {
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
			Data:       map[string][]byte{"from": []byte(name)},
		}
	}
	class := testClass(map[string]string{
		"csi.storage.k8s.io/provisioner-secret-name":      "of-class",
		"csi.storage.k8s.io/provisioner-secret-namespace": "n",
	})
	annotate := func(name, namespace string) func(*corev1.PersistentVolume) {
		return func(volume *corev1.PersistentVolume) {
			volume.Annotations[deletionSecretName] = name
			volume.Annotations[deletionSecretNamespace] = namespace
		}
	}
	old := func(volume *corev1.PersistentVolume) {
		delete(volume.Annotations, deletionSecretName)
		delete(volume.Annotations, deletionSecretNamespace)
	}
	tests := map[string]struct {
		volume *corev1.PersistentVolume
		want   string
	}{
		"recorded":         {releasedVolume("pvc-1", annotate("of-volume", "n")), "of-volume"},
		"recorded as none": {releasedVolume("pvc-1"), ""},
		"gone meanwhile":   {releasedVolume("pvc-1", annotate("absent", "n")), ""},
		"from the class":   {releasedVolume("pvc-1", old), "of-class"},
		"class is gone": {releasedVolume("pvc-1", old, func(volume *corev1.PersistentVolume) {
			volume.Spec.StorageClassName = "absent"
		}), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, class, secret("of-volume"), secret("of-class"), test.volume)
			w.awaitGone("pvc-1")
			if got := w.driver.Deletes()[0].GetSecrets()["from"]; got != test.want {
				t.Errorf("the driver got the secret %q, want %q", got, test.want)
			}
		})
	}
}

// Events say so, and nothing else is kept from working.
func TestDriverThatCannotMakeVolumes(t *testing.T) {
	driver := drivertest.New(driverName)
	driver.SetCapabilities()
	w := newWorldOf(t, driver, nil, testClass(nil), releasedVolume("pvc-1"))
	w.createClaim(testClaim("data"))
	const says = "volumes cannot be created or deleted: CSI driver nfs.example does not declare CREATE_DELETE_VOLUME"
	w.awaitEvent("ProvisioningFailed", says)
	w.awaitEvent("VolumeFailedDelete", says)
	if w.volume("pvc-1") == nil {
		t.Error("a volume that was not deleted has lost its PersistentVolume")
	}
	w.wantCalls(0, 0)
	if entries := w.journaled(); entries != 0 {
		t.Errorf("%d journal entries for volumes that were not begun", entries)
	}
}

func TestHalfADeletionSecretStopsDeletion(t *testing.T) {
	w := newWorld(t, nil)
	volume := releasedVolume("pvc-1", func(volume *corev1.PersistentVolume) { volume.Annotations[deletionSecretName] = "s" })
	if _, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitEvent("VolumeFailedDelete", "must both be set or both be empty")
	if deletes := w.driver.Deletes(); len(deletes) != 0 {
		t.Errorf("the driver was called without the secret: %v", deletes)
	}
}
