package plan

import (
	"errors"
	"reflect"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func allSecrets() map[string]string {
	parameters := map[string]string{}
	for _, purpose := range purposes() {
		parameters[purpose.nameKey()] = string(purpose)
		parameters[purpose.namespaceKey()] = "n"
	}
	return parameters
}

func TestVolume(t *testing.T) {
	class := testClass(allSecrets())
	class.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain)
	creation, err := NewCreation(testOptions(), testClaim(), class, "pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	answered := map[string]string{"server": "a"}
	got, err := creation.Volume(&csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: "a#b#c", CapacityBytes: 2 * gib, VolumeContext: answered,
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-1",
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                            "nfs.example",
				"volume.kubernetes.io/provisioner-deletion-secret-name":      "provisioner-secret",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace": "n",
				"volume.kubernetes.io/controller-modify-secret-name":         "controller-modify-secret",
				"volume.kubernetes.io/controller-modify-secret-namespace":    "n",
			},
			Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			MountOptions:     []string{"nfsvers=4.2", "hard"},
			StorageClassName: "fast",
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "team-a", Name: "data", UID: "1",
			},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(2*gib, resource.BinarySI)},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver:       "nfs.example",
				VolumeHandle: "a#b#c",
				VolumeAttributes: map[string]string{
					"server": "a",
					"storage.kubernetes.io/csiProvisionerIdentity": "17-nfs.example",
				},
				ControllerPublishSecretRef: &corev1.SecretReference{Namespace: "n", Name: "controller-publish-secret"},
				NodeStageSecretRef:         &corev1.SecretReference{Namespace: "n", Name: "node-stage-secret"},
				NodePublishSecretRef:       &corev1.SecretReference{Namespace: "n", Name: "node-publish-secret"},
				ControllerExpandSecretRef:  &corev1.SecretReference{Namespace: "n", Name: "controller-expand-secret"},
				NodeExpandSecretRef:        &corev1.SecretReference{Namespace: "n", Name: "node-expand-secret"},
			}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if len(answered) != 1 {
		t.Errorf("the driver's answer was modified: %v", answered)
	}
}

func TestVolumeDefaults(t *testing.T) {
	creation, err := NewCreation(testOptions(), testClaim(block), testClass(nil), "pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	pv, err := creation.Volume(&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "id"}})
	if err != nil {
		t.Fatal(err)
	}
	if size := pv.Spec.Capacity[corev1.ResourceStorage]; size.Value() != gib {
		t.Errorf("capacity is %s, want the request when the driver does not say", size.String())
	}
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("reclaim policy is %s", pv.Spec.PersistentVolumeReclaimPolicy)
	}
	if *pv.Spec.VolumeMode != corev1.PersistentVolumeBlock {
		t.Errorf("volume mode is %s", *pv.Spec.VolumeMode)
	}
	// Present and empty: "no secret", which is not the same as "not known".
	if secret, known, err := DeletionSecret(pv); !secret.IsZero() || !known || err != nil {
		t.Errorf("DeletionSecret() = %v, %t, %v", secret, known, err)
	}
	if csiSource := pv.Spec.CSI; csiSource.NodePublishSecretRef != nil || csiSource.ControllerExpandSecretRef != nil {
		t.Error("secret references appeared from nowhere")
	}
}

func TestReadOnlyVolume(t *testing.T) {
	const rox, rwx = corev1.ReadOnlyMany, corev1.ReadWriteMany
	tests := []struct {
		asked bool
		modes []corev1.PersistentVolumeAccessMode
		want  bool
	}{
		{true, []corev1.PersistentVolumeAccessMode{rox}, true},
		{true, []corev1.PersistentVolumeAccessMode{rox, rwx}, false},
		{true, []corev1.PersistentVolumeAccessMode{rwx}, false},
		{false, []corev1.PersistentVolumeAccessMode{rox}, false},
	}
	for _, test := range tests {
		options := testOptions()
		options.ReadOnlyPublish = test.asked
		creation, err := NewCreation(options, testClaim(modes(test.modes...)), testClass(nil), "pvc-1")
		if err != nil {
			t.Fatal(err)
		}
		pv, err := creation.Volume(&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "id"}})
		if err != nil {
			t.Fatal(err)
		}
		if pv.Spec.CSI.ReadOnly != test.want {
			t.Errorf("asked %t, modes %v: read-only is %t", test.asked, test.modes, pv.Spec.CSI.ReadOnly)
		}
	}
}

func TestUnusableResponses(t *testing.T) {
	creation, err := NewCreation(testOptions(), testClaim(), testClass(nil), "pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]*csi.CreateVolumeResponse{
		"nil":       nil,
		"no volume": {},
		"no ID":     {Volume: &csi.Volume{CapacityBytes: gib}},
		"too small": {Volume: &csi.Volume{VolumeId: "id", CapacityBytes: gib - 1}},
	}
	for name, response := range tests {
		if pv, err := creation.Volume(response); pv != nil || !errors.Is(err, ErrResponse) {
			t.Errorf("%s: %v, %v, want ErrResponse", name, pv, err)
		}
	}
}

func TestDeletionSecret(t *testing.T) {
	const nameKey = "volume.kubernetes.io/provisioner-deletion-secret-name"
	const namespaceKey = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
	tests := map[string]struct {
		annotations map[string]string
		want        SecretRef
		known       bool
		err         error
	}{
		"none recorded": {map[string]string{nameKey: "", namespaceKey: ""}, SecretRef{}, true, nil},
		"recorded":      {map[string]string{nameKey: "s", namespaceKey: "n"}, SecretRef{Namespace: "n", Name: "s"}, true, nil},
		"old volume":    {nil, SecretRef{}, false, nil},
		"half":          {map[string]string{nameKey: "s"}, SecretRef{}, false, ErrVolume},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			got, known, err := DeletionSecret(pv)
			if !reflect.DeepEqual(got, test.want) || known != test.known || !errors.Is(err, test.err) {
				t.Errorf("DeletionSecret() = %v, %t, %v", got, known, err)
			}
		})
	}
}

func TestClassDeletionSecret(t *testing.T) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "team-a", Name: "data"}
	parameters := map[string]string{
		"csi.storage.k8s.io/provisioner-secret-name":      "${pvc.name}-${pv.name}",
		"csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
	}
	got, err := ClassDeletionSecret(parameters, pv)
	if want := (SecretRef{Namespace: "team-a", Name: "data-pvc-1"}); err != nil || got != want {
		t.Errorf("ClassDeletionSecret() = %v, %v, want %v", got, err, want)
	}
	parameters["csi.storage.k8s.io/provisioner-secret-name"] = "${pvc.annotations['k']}"
	if _, err := ClassDeletionSecret(parameters, pv); !errors.Is(err, ErrClass) {
		t.Errorf("ClassDeletionSecret() = %v for a token that is gone with the claim", err)
	}
}
