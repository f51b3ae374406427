package provisioner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The library skips a claim while there is a PersistentVolume of its name.
func TestClaimIsTriedAgainWhenTheNameIsFree(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolume){
		"the claim's own, from before": func(volume *corev1.PersistentVolume) { volume.Spec.ClaimRef.UID = "uid-data" },
		"another claim's":              func(volume *corev1.PersistentVolume) { volume.Spec.ClaimRef.UID = "uid-other" },
	} {
		t.Run(name, func(t *testing.T) {
			inTheWay := releasedVolume("pvc-uid-data", change, func(volume *corev1.PersistentVolume) { volume.Status.Phase = corev1.VolumeBound })
			w := newWorld(t, nil, testClass(nil), inTheWay)
			w.createClaim(testClaim("data"))
			w.createClaim(testClaim("after"))
			w.awaitVolume("pvc-uid-after")
			if err := w.client.CoreV1().PersistentVolumes().Delete(t.Context(), inTheWay.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the claim gets its volume", func() bool {
				volume := w.volume("pvc-uid-data")
				return volume != nil && volume.Status.Phase == "" && volume.Spec.CSI.VolumeHandle == "id-of-pvc-uid-data"
			})
		})
	}
}
