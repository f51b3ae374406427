package provisioner

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A claim is written back as a whole, so that it must stay one.
func TestTrimKeepsClaims(t *testing.T) {
	trimmer := newTrimmer()
	for _, size := range []string{"1Gi", "2Gi", "1Gi"} {
		claim := testClaim("data", func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
			claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
		})
		want := claim.DeepCopy()
		claim.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		got, err := trimmer.trim(claim)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("trim() = %+v, %v, want %+v", got, err, want)
		}
	}
	if len(trimmer.requests) != 3 {
		t.Errorf("remembers %v, want three sizes", trimmer.requests)
	}
}

func TestTrimKeepsWhatDeletionNeeds(t *testing.T) {
	volume := releasedVolume("pvc-1")
	want := volume.DeepCopy()
	volume.Spec.MountOptions = []string{"hard"}
	volume.Spec.CSI.VolumeAttributes = map[string]string{"server": "a"}
	if got, err := newTrimmer().trim(volume); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("trim() = %+v, %v, want %+v", got, err, want)
	}
}
