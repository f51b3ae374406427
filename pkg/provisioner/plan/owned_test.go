package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOwnedByOther(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data", UID: "uid"}}
	for name, test := range map[string]struct {
		owner *corev1.ObjectReference
		want  bool
	}{
		"nobody's":               {nil, true},
		"the claim's":            {&corev1.ObjectReference{Namespace: "team", Name: "data", UID: "uid"}, false},
		"reserved for it":        {&corev1.ObjectReference{Namespace: "team", Name: "data"}, false},
		"an earlier claim's":     {&corev1.ObjectReference{Namespace: "team", Name: "data", UID: "before"}, true},
		"another claim's":        {&corev1.ObjectReference{Namespace: "team", Name: "logs", UID: "other"}, true},
		"of another namespace's": {&corev1.ObjectReference{Namespace: "other", Name: "data"}, true},
	} {
		existing := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: test.owner}}
		if got := OwnedByOther(existing, claim); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
