package adapter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// deletedVolume is one that the API server keeps for its finalizers.
func deletedVolume(finalizers ...string) *corev1.PersistentVolume {
	return releasedVolume("pvc-1", func(volume *corev1.PersistentVolume) {
		volume.UID = "uid-1"
		volume.DeletionTimestamp = new(metav1.Now())
		volume.Finalizers = finalizers
	})
}

func TestDeletions(t *testing.T) {
	tests := map[string]struct {
		patched *corev1.PersistentVolume
		// The informer has seen the volume go before the patch was answered.
		gone bool
		want bool
	}{
		"given up":                 {patched: deletedVolume("kubernetes.io/pv-protection"), want: true},
		"still to be given up":     {patched: deletedVolume(plan.VolumeFinalizer)},
		"given up and gone":        {patched: deletedVolume(), gone: true, want: true},
		"given up, not deleted":    {patched: releasedVolume("pvc-1", func(volume *corev1.PersistentVolume) { volume.UID = "uid-1" })},
		"nobody knows which it is": {patched: func() *corev1.PersistentVolume { v := deletedVolume(); v.UID = ""; return v }()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			informer := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().PersistentVolumes().Informer()
			d := newDeletions(informer.GetStore())
			if !test.gone {
				if err := informer.GetStore().Add(test.patched); err != nil {
					t.Fatal(err)
				}
			}
			d.patched(test.patched)
			if got := d.finished(test.patched); got != test.want {
				t.Errorf("finished() = %t, want %t", got, test.want)
			}
			if test.gone && len(d.done) != 0 {
				t.Errorf("kept although the volume is gone: %v", d.done)
			}
			d.forget(test.patched.UID)
			if len(d.done) != 0 {
				t.Errorf("kept when the volume is gone: %v", d.done)
			}
		})
	}
}

// A worker that took the volume from the cache just before it left must not
// delete it, nor another volume of the same name.
func TestVolumeThatHasLeftTheCache(t *testing.T) {
	informer := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().PersistentVolumes().Informer()
	d := newDeletions(informer.GetStore())
	volume := deletedVolume(plan.VolumeFinalizer)
	if !d.finished(volume) {
		t.Error("a volume that is gone is to be deleted")
	}
	successor := releasedVolume("pvc-1", func(volume *corev1.PersistentVolume) { volume.UID = "uid-2" })
	if err := informer.GetStore().Add(successor); err != nil {
		t.Fatal(err)
	}
	if !d.finished(volume) || d.finished(successor) {
		t.Error("two volumes of one name are taken for each other")
	}
}

func releasedVolume(name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
		Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	}
	for _, apply := range change {
		apply(volume)
	}
	return volume
}
