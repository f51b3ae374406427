package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (w *world) deleteVolume(name string) {
	w.Helper()
	if err := w.client.CoreV1().PersistentVolumes().Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// HonorPVReclaimPolicy: also where the PersistentVolume is deleted before its
// claim, the policy counts.
func TestVolumeDeletedBeforeItsClaim(t *testing.T) {
	w := newWorld(t)
	w.createClass(w.name+"-retain", func(class *storagev1.StorageClass) {
		class.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain)
	})
	w.start()
	w.createClaim("deleted")
	w.createClaim("kept", ofClass(w.name+"-retain"))
	deleted, kept := w.awaitBound("deleted"), w.awaitBound("kept")
	for _, volume := range []*corev1.PersistentVolume{deleted, kept} {
		w.deleteVolume(volume.Name)
	}
	if calls := w.driver.Deletes(); len(calls) != 0 {
		t.Errorf("volumes in use were deleted: %v", calls)
	}
	w.deleteClaim("deleted")
	w.deleteClaim("kept")
	w.awaitVolumeGone(deleted.Name)
	w.awaitVolumeGone(kept.Name)
	volumes := w.driver.Volumes()
	if volumes[deleted.Name] != nil || volumes[kept.Name] == nil {
		t.Errorf("the driver has %v, want %s only", volumes, kept.Name)
	}
}

// An administrator changes what is to become of a volume.
func TestReclaimPolicyOfAReleasedVolume(t *testing.T) {
	w := newWorld(t, func(class *storagev1.StorageClass) { class.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain) })
	w.start()
	w.createClaim("data")
	name := w.awaitBound("data").Name
	w.deleteClaim("data")
	volumes := w.client.CoreV1().PersistentVolumes()
	w.eventually("the volume is released", func() error {
		volume, err := volumes.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && volume.Status.Phase != corev1.VolumeReleased {
			err = fmt.Errorf("it is %s", volume.Status.Phase)
		}
		return err
	})
	if calls := w.driver.Deletes(); len(calls) != 0 {
		t.Fatalf("a volume to be retained was deleted: %v", calls)
	}
	patch := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	if _, err := volumes.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitVolumeGone(name)
	if volumes := w.driver.Volumes(); len(volumes) != 0 {
		t.Errorf("the driver still has %v", volumes)
	}
}

// takeName makes a PersistentVolume of the name that the claim's will have.
func (w *world) takeName(claim *corev1.PersistentVolumeClaim) (name string) {
	w.Helper()
	other := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID)},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               claim.Spec.Resources.Requests,
			StorageClassName:       "other",
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
		},
	}
	if _, err := w.client.CoreV1().PersistentVolumes().Create(w.Context(), other, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return other.Name
}

// The name of a claim's volume is somebody else's, already or by the time that the
// volume is made.
func TestVolumeNameIsTaken(t *testing.T) {
	w := newWorld(t)
	before := w.takeName(w.createClaim("before"))
	entered, open := w.slow()
	first := w.start("--retry-interval-max=200ms")
	w.awaitEvent("before", "ProvisioningFailed", "PersistentVolume "+before+" exists already and is not this claim's")
	claim := w.createClaim("meanwhile")
	w.receive(entered)
	meanwhile := w.takeName(claim)
	open()
	w.awaitEvent("meanwhile", "ProvisioningFailed", "volume is kept until its PersistentVolume can be saved: "+
		"claim cannot be provisioned: PersistentVolume "+meanwhile+" exists already and is not this claim's")
	w.wantCalls(1, 0)
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	w.deleteVolume(before)
	w.deleteVolume(meanwhile)
	w.awaitVolumeGone(before)
	w.awaitVolumeGone(meanwhile)
	w.start()
	w.awaitBound("before")
	w.awaitBound("meanwhile")
	w.wantCalls(2, 0)
	w.settled()
}

// Claims that wait for their pod are left alone until the scheduler has chosen.
func TestWaitForFirstConsumer(t *testing.T) {
	w := newWorld(t, func(class *storagev1.StorageClass) {
		class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	})
	w.createClass(w.name+"-immediate", func(class *storagev1.StorageClass) {})
	w.start()
	w.createClaim("waiting")
	w.awaitEvent("waiting", "WaitForFirstConsumer", "waiting for first consumer")
	// One that comes later is made: the first was not only slow.
	w.createClaim("immediate", ofClass(w.name+"-immediate"))
	immediate := w.awaitBound("immediate")
	if calls := w.driver.Creates(); len(calls) != 1 || calls[0].GetName() != immediate.Name {
		t.Errorf("the driver was asked for %v", calls)
	}
	// A node that need not be there: the driver has no topology.
	w.schedule("waiting", "any-node")
	if volume := w.awaitBound("waiting"); volume.Spec.NodeAffinity != nil {
		t.Errorf("it can be reached from %v only", volume.Spec.NodeAffinity)
	}
}

// One volume that takes its time delays no other.
func TestSlowVolume(t *testing.T) {
	w := newWorld(t)
	entered, open := w.slowOnly("slow")
	w.start("--extra-create-metadata")
	w.createClaim("slow")
	w.receive(entered)
	for i := range 20 {
		w.createClaim(fmt.Sprintf("claim-%d", i))
	}
	for i := range 20 {
		w.awaitBound(fmt.Sprintf("claim-%d", i))
	}
	w.deleteClaim("claim-0")
	w.eventually("another volume is deleted meanwhile", func() error {
		if calls := len(w.driver.Deletes()); calls != 1 {
			return fmt.Errorf("%d deletions", calls)
		}
		return nil
	})
	open()
	w.awaitBound("slow")
	w.settled()
}
