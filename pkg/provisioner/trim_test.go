package provisioner

import (
	"maps"
	"reflect"
	"strconv"
	"strings"
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
	if len(trimmer.sizes.known) != 3 {
		t.Errorf("remembers %v, want three sizes", trimmer.sizes.known)
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

// Values written by users can make no two maps look alike.
func TestSharedMaps(t *testing.T) {
	trimmer := newTrimmer()
	all := []map[string]string{
		{"a": "1"}, {"a": "2"}, {"a": "1", "b": "2"}, {"a": "1b2"}, {"a": "1\x00b\x002"}, {"a": "11:b1:2"}, {"a1": ""}, {"": "a1"}, {"a": strings.Repeat("x", longestShared)},
	}
	for range 2 {
		for _, labels := range all {
			claim := testClaim("data", func(claim *corev1.PersistentVolumeClaim) { claim.Labels = maps.Clone(labels) })
			got, err := trimmer.trim(claim)
			if err != nil || !maps.Equal(got.(*corev1.PersistentVolumeClaim).Labels, labels) {
				t.Errorf("%v became %v, %v", labels, got, err)
			}
		}
	}
	// All but the longest, and the annotations that every claim has.
	if got, want := len(trimmer.texts.known), len(all); got != want {
		t.Errorf("remembers %d maps, want %d", got, want)
	}
	for i := range 2 * mostShared {
		if got := trimmer.text(map[string]string{"n": strconv.Itoa(i)}); got["n"] != strconv.Itoa(i) {
			t.Fatalf("%d became %v", i, got)
		}
	}
	if got := len(trimmer.texts.known); got != mostShared {
		t.Errorf("remembers %d maps, want %d", got, mostShared)
	}
}
