package cluster

import (
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// A claim is written back as a whole and must stay complete.
func TestTrimKeepsClaims(t *testing.T) {
	trimmer := newTrimmer(plan.Node{})
	for _, size := range []string{"1Gi", "2Gi", "1Gi"} {
		claim := testClaim(func(claim *corev1.PersistentVolumeClaim) {
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
	volume := releasedVolume()
	want := volume.DeepCopy()
	volume.Spec.MountOptions = []string{"hard"}
	volume.Spec.CSI.VolumeAttributes = map[string]string{"server": "a"}
	if got, err := newTrimmer(plan.Node{}).trim(volume); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("trim() = %+v, %v, want %+v", got, err, want)
	}
}

// The node of a volume without affinity is the one in the identity.
func TestTrimKeepsTheIdentityForNodes(t *testing.T) {
	for name, test := range map[string]struct {
		node     plan.Node
		affinity *corev1.VolumeNodeAffinity
		want     map[string]string
	}{
		"whole cluster":    {},
		"node":             {node: plan.Node{Name: "n1"}, want: map[string]string{plan.IdentityAttribute: "17-42-nfs.example-n1"}},
		"node by affinity": {node: plan.Node{Name: "n1"}, affinity: &corev1.VolumeNodeAffinity{}},
	} {
		volume := releasedVolume()
		volume.Spec.NodeAffinity = test.affinity
		volume.Spec.CSI.VolumeAttributes = map[string]string{"server": "a", plan.IdentityAttribute: "17-42-nfs.example-n1"}
		if _, err := newTrimmer(test.node).trim(volume); err != nil || !maps.Equal(volume.Spec.CSI.VolumeAttributes, test.want) {
			t.Errorf("%s: kept %v, %v", name, volume.Spec.CSI.VolumeAttributes, err)
		}
	}
}

// Values written by users must not make two maps look alike.
func TestSharedMaps(t *testing.T) {
	trimmer := newTrimmer(plan.Node{})
	all := []map[string]string{
		{"a": "1"}, {"a": "2"}, {"a": "1", "b": "2"}, {"a": "1b2"}, {"a": "1\x00b\x002"}, {"a": "11:b1:2"}, {"a1": ""}, {"": "a1"}, {"a": strings.Repeat("x", maxSharedLength)},
	}
	for range 2 {
		for _, labels := range all {
			claim := testClaim(func(claim *corev1.PersistentVolumeClaim) { claim.Labels = maps.Clone(labels) })
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
	for i := range 2 * maxShared {
		if got := trimmer.text(map[string]string{"n": strconv.Itoa(i)}); got["n"] != strconv.Itoa(i) {
			t.Fatalf("%d became %v", i, got)
		}
	}
	if got := len(trimmer.texts.known); got != maxShared {
		t.Errorf("remembers %d maps, want %d", got, maxShared)
	}
}

func testClaim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "data", UID: "uid-data", Annotations: map[string]string{"by": "nfs.example"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
	change(claim)
	return claim
}

func releasedVolume() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{"by": "nfs.example"}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              "fast",
			ClaimRef:                      &corev1.ObjectReference{Namespace: "team-a", Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "nfs.example", VolumeHandle: "id-of-pvc-1"},
			},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	}
}
