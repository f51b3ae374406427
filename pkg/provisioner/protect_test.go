package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/sources"
)

func (w *world) addSnapshot(name string, finalizers ...string) {
	w.Helper()
	snapshot := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
		"metadata": map[string]any{"namespace": "team-a", "name": name, "uid": "uid-" + name},
		"status":   map[string]any{"boundVolumeSnapshotContentName": name, "readyToUse": true},
	}}
	snapshot.SetFinalizers(finalizers)
	content := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"driver":            driverName,
			"volumeSnapshotRef": map[string]any{"namespace": "team-a", "name": name, "uid": "uid-" + name},
		},
		"status": map[string]any{"snapshotHandle": "handle"},
	}}
	if _, err := w.dynamic.Resource(sources.ContentResource()).Create(w.Context(), content, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if _, err := w.dynamic.Resource(sources.SnapshotResource()).Namespace("team-a").Create(w.Context(), snapshot, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) protected(snapshot string) bool {
	w.Helper()
	protected, err := w.isProtected(w.Context(), snapshot)
	if err != nil {
		w.Fatal(err)
	}
	return protected
}

// isProtected is for goroutines other than the test's.
func (w *world) isProtected(ctx context.Context, snapshot string) (bool, error) {
	object, err := w.dynamic.Resource(sources.SnapshotResource()).Namespace("team-a").Get(ctx, snapshot, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	return slices.Contains(object.GetFinalizers(), sources.SnapshotFinalizer), nil
}

// newSourceWorld is one whose driver has snapshots and clones.
func newSourceWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, nil, testClass(nil))
	w.kill()
	if err := w.driver.Stop(); err != nil {
		t.Fatal(err)
	}
	w.driver.SetCapabilities(
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	)
	w.socket = startDriver(t, w.driver)
	w.config.Driver = connect(t, w.socket)
	return w
}

func restored(name, snapshot string) *corev1.PersistentVolumeClaim {
	return testClaim(name, func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: snapshot}
	})
}

// A source in use is protected, even if the claim that uses it is gone.
func TestSnapshotIsProtectedWhileTheDriverWorks(t *testing.T) {
	w := newSourceWorld(t)
	w.addSnapshot("monday")
	g := newGate()
	w.driver.OnCreate(g.create)
	w.run()
	w.createClaim(restored("data", "monday"))
	<-g.entered
	w.deleteClaim("data")
	w.sweeps(3)
	if !w.protected("monday") {
		t.Error("a snapshot that is being restored is not protected")
	}
	close(g.opened)
	w.awaitVolume("pvc-uid-data")
	eventually(t, "the protection is taken back", func() bool { return !w.protected("monday") })
}

// After a restart during a restore, with the claim gone, the snapshot is kept until the
// volume is finished.
func TestSnapshotOfAVolumeLeftBehindIsProtected(t *testing.T) {
	w := newSourceWorld(t)
	w.addSnapshot("monday")
	w.run()
	w.dieAfterCreate(restored("data", "monday"))
	w.deleteClaim("data")
	g := newGate()
	w.driver.OnCreate(g.create)
	w.run()
	<-g.entered
	w.sweeps(3)
	if !w.protected("monday") {
		t.Error("a snapshot that is being restored is not protected")
	}
	close(g.opened)
	w.awaitVolume("pvc-uid-data")
	eventually(t, "the protection is taken back", func() bool { return !w.protected("monday") })
}

func TestFailedListRemovesNoFinalizer(t *testing.T) {
	w := newSourceWorld(t)
	w.addSnapshot("orphan", sources.SnapshotFinalizer)
	var broken atomic.Bool
	broken.Store(true)
	prepend(w.dynamic, "list", "volumesnapshots", func(clienttesting.Action) (bool, runtime.Object, error) {
		if broken.Load() {
			return true, nil, errors.New("etcd is away")
		}
		return false, nil, nil
	})
	w.run()
	w.sweeps(3)
	if !w.protected("orphan") {
		t.Error("a finalizer was removed although nothing could be listed")
	}
	broken.Store(false)
	eventually(t, "the orphaned finalizer is removed", func() bool { return !w.protected("orphan") })
}

func TestManyRestoresOfOneSnapshot(t *testing.T) {
	w := newSourceWorld(t)
	w.addSnapshot("monday")
	w.driver.OnCreate(func(ctx context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if protected, err := w.isProtected(ctx, "monday"); err != nil || !protected {
			t.Errorf("%s is made from an unprotected snapshot, %v", request.GetName(), err)
		}
		return next()
	})
	w.run()
	for i := range 20 {
		w.createClaim(restored(fmt.Sprint(i), "monday"))
	}
	for i := range 20 {
		w.awaitVolume(fmt.Sprintf("pvc-uid-%d", i))
	}
	// The PV controller has bound them.
	for i := range 20 {
		claim := restored(fmt.Sprint(i), "monday")
		claim.Spec.VolumeName = fmt.Sprintf("pvc-uid-%d", i)
		w.touchClaim(claim, "bound")
	}
	eventually(t, "the protection is taken back", func() bool { return !w.protected("monday") })
}

// Somebody else changes the snapshot at the same time.
func TestSnapshotIsProtectedDespiteAConflict(t *testing.T) {
	w := newSourceWorld(t)
	w.addSnapshot("monday")
	var updates atomic.Int32
	prepend(w.dynamic, "update", "volumesnapshots", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if updates.Add(1) > 2 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), "monday", errors.New("modified"))
	})
	w.run()
	w.createClaim(restored("data", "monday"))
	w.awaitVolume("pvc-uid-data")
	w.awaitEvent("ProvisioningSucceeded", "pvc-uid-data")
	for _, event := range w.events() {
		if event.Reason == "ProvisioningFailed" {
			t.Errorf("the claim is bothered with it: %s", event.Message)
		}
	}
	if updates.Load() < 3 {
		t.Errorf("%d updates, of which 2 were to conflict", updates.Load())
	}
}

// Somebody else adds a finalizer to the source of a clone at the same time. Theirs stays.
func TestClaimIsProtectedDespiteAConflict(t *testing.T) {
	const foreign = "example.com/theirs"
	w := newSourceWorld(t)
	volume := releasedVolume("of-source", func(volume *corev1.PersistentVolume) {
		volume.Status.Phase, volume.Spec.ClaimRef.UID = corev1.VolumeBound, "uid-source"
	})
	if _, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	source := testClaim("source", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.VolumeName, claim.Status.Phase = "of-source", corev1.ClaimBound
	})
	w.createClaim(source)
	var changed atomic.Bool
	prepend(w.client, "update", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if changed.Swap(true) {
			return false, nil, nil
		}
		theirs := source.DeepCopy()
		theirs.Finalizers = []string{foreign}
		if err := w.client.Tracker().Update(action.GetResource(), theirs, "team-a"); err != nil {
			return true, nil, err
		}
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), "source", errors.New("modified"))
	})
	g := newGate()
	w.driver.OnCreate(g.create)
	w.run()
	w.createClaim(testClaim("clone", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
	}))
	<-g.entered
	if got := w.finalizers("source"); !slices.Equal(got, []string{foreign, sources.CloningFinalizer}) {
		t.Errorf("while the driver clones it, the source has the finalizers %v", got)
	}
	close(g.opened)
	w.awaitVolume("pvc-uid-clone")
	w.deleteClaim("clone")
	eventually(t, "the protection is taken back", func() bool { return slices.Equal(w.finalizers("source"), []string{foreign}) })
}

func (w *world) finalizers(claim string) []string {
	w.Helper()
	object, err := w.client.CoreV1().PersistentVolumeClaims("team-a").Get(w.Context(), claim, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return object.GetFinalizers()
}

// Another driver's provisioner may still be using a source that no claim needs.
func TestProtectionOfAnotherDriverIsLeftAlone(t *testing.T) {
	w := newSourceWorld(t)
	w.addSnapshot("orphan", sources.SnapshotFinalizer)
	w.addSnapshot("foreign", sources.SnapshotFinalizer)
	patch := []byte(`{"spec":{"driver":"other.example"}}`)
	if _, err := w.dynamic.Resource(sources.ContentResource()).Patch(t.Context(), "foreign", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for claim, driver := range map[string]string{"orphan-source": driverName, "foreign-source": "other.example"} {
		volume := releasedVolume("volume-of-"+claim, func(volume *corev1.PersistentVolume) {
			volume.Spec.CSI.Driver, volume.Status.Phase = driver, corev1.VolumeBound
		})
		if _, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.createClaim(testClaim(claim, func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.VolumeName, claim.Finalizers = volume.Name, []string{sources.CloningFinalizer}
		}))
	}
	w.run()
	restore := restored("data", "foreign")
	restore.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": "other.example"}
	w.createClaim(restore)
	w.deleteClaim("data")
	cloned := func(name string) bool {
		claim, err := w.client.CoreV1().PersistentVolumeClaims("team-a").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(claim.Finalizers, sources.CloningFinalizer)
	}
	eventually(t, "what this driver's left behind is let go", func() bool { return !w.protected("orphan") && !cloned("orphan-source") })
	w.sweeps(3)
	if !w.protected("foreign") || !cloned("foreign-source") {
		t.Errorf("another driver's are protected: snapshot %t, claim %t", w.protected("foreign"), cloned("foreign-source"))
	}
}

// As in external-provisioner, the interval is one of snapshots; claims are still searched
// for finalizers left behind.
func TestSweepOfSnapshotsCanBeSwitchedOff(t *testing.T) {
	w := newSourceWorld(t)
	w.config.OrphanSweepInterval = 0
	w.addSnapshot("orphan", sources.SnapshotFinalizer)
	volume := releasedVolume("volume", func(volume *corev1.PersistentVolume) { volume.Status.Phase = corev1.VolumeBound })
	if _, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.createClaim(testClaim("source", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.VolumeName, claim.Finalizers = volume.Name, []string{sources.CloningFinalizer}
	}))
	w.run()
	eventually(t, "the claim is let go", func() bool {
		claim, err := w.client.CoreV1().PersistentVolumeClaims("team-a").Get(t.Context(), "source", metav1.GetOptions{})
		return err == nil && len(claim.Finalizers) == 0
	})
	for _, action := range w.dynamic.Actions() {
		if action.Matches("list", "volumesnapshots") {
			t.Error("the snapshots were searched")
		}
	}
	if !w.protected("orphan") {
		t.Error("a snapshot was let go")
	}
}

// sweeps waits for this many more sweeps.
func (w *world) sweeps(count int) {
	w.Helper()
	lists := func() (lists int) {
		for _, action := range w.dynamic.Actions() {
			if action.Matches("list", "volumesnapshots") {
				lists++
			}
		}
		return lists
	}
	before := lists()
	eventually(w.T, "the sweep goes on", func() bool { return lists() >= before+count })
}
