package provisioner

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

func (w *world) deleteClaim(name string) {
	w.Helper()
	if err := w.client.CoreV1().PersistentVolumeClaims("team-a").Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// touchClaim makes the provisioner look at a claim again.
func (w *world) touchClaim(claim *corev1.PersistentVolumeClaim, label string) {
	w.Helper()
	claim = claim.DeepCopy()
	claim.Labels = map[string]string{"touched": label}
	if _, err := w.client.CoreV1().PersistentVolumeClaims("team-a").Update(w.Context(), claim, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// dieAfterCreate leaves the volume at the driver and nowhere else.
func (w *world) dieAfterCreate(claim *corev1.PersistentVolumeClaim) {
	w.Helper()
	created := make(chan struct{}, 10)
	w.driver.OnCreate(func(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		response, err := next()
		created <- struct{}{}
		<-ctx.Done()
		return response, err
	})
	w.createClaim(claim)
	<-created
	w.kill()
	w.driver.OnCreate(nil)
	if volumes := w.driver.Volumes(); len(volumes) != 1 || w.volume("pvc-"+string(claim.UID)) != nil {
		w.Fatalf("the driver has %v, want one without a PersistentVolume", volumes)
	}
}

// A call of long ago is repeated for a claim, and for nobody else.
func TestEntryOfLongAgo(t *testing.T) {
	for name, test := range map[string]struct {
		age     time.Duration
		creates int
	}{
		"of today":     {23 * time.Hour, 2},
		"of yesterday": {25 * time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, testClass(nil))
			w.dieAfterCreate(testClaim("data"))
			w.backdate("pvc-uid-data", test.age)
			w.deleteClaim("data")
			w.run()
			w.awaitEmptyJournal()
			w.wantCalls(test.creates, 0)
			if saved := w.volume("pvc-uid-data") != nil; saved != (test.creates == 2) {
				t.Errorf("it was saved: %t", saved)
			}
			if test.creates == 1 {
				w.awaitEvent("ProvisioningCleanupFailed", "more than 24h0m0s ago, and is not looked for any more")
			}
		})
	}
	t.Run("with its claim", func(t *testing.T) {
		w := newWorld(t, nil, testClass(nil))
		w.dieAfterCreate(testClaim("data"))
		w.backdate("pvc-uid-data", 25*time.Hour)
		w.run()
		w.awaitVolume("pvc-uid-data")
	})
}

func TestClaimDeletedWhileNobodyWorks(t *testing.T) {
	w := newWorld(t, nil, testClass(map[string]string{"server": "a"}))
	w.dieAfterCreate(testClaim("data"))
	w.deleteClaim("data")
	// Not even its class exists to make the same request again.
	if err := w.client.StorageV1().StorageClasses().Delete(t.Context(), "fast", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.run()
	volume := w.awaitVolume("pvc-uid-data")
	if volume.Spec.ClaimRef.UID != "uid-data" || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("saved %v", volume.Spec)
	}
	// The PV controller's part.
	volume.Status.Phase = corev1.VolumeReleased
	if _, err := w.client.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), volume, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitGone("pvc-uid-data")
	if volumes := w.driver.Volumes(); len(volumes) != 0 {
		t.Errorf("left behind: %v", volumes)
	}
}

func TestClaimBoundElsewhereWhileNobodyWorks(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	claim := testClaim("data")
	w.dieAfterCreate(claim)
	claim.Spec.VolumeName = "static"
	w.touchClaim(claim, "bound")
	w.run()
	w.awaitVolume("pvc-uid-data")
}

func TestWhatCannotBeCleanedUpIsReported(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.dieAfterCreate(testClaim("data"))
	w.deleteClaim("data")
	var calls atomic.Int32
	w.driver.OnCreate(func(_ context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if calls.Add(1) <= 2 {
			return nil, status.Error(codes.Internal, "the server is down")
		}
		return next()
	})
	w.run()
	w.awaitEvent("ProvisioningCleanupFailed", "Internal: the server is down; next try in ")
	w.awaitVolume("pvc-uid-data")
}

// One volume that the driver is slow to answer for holds up no other.
func TestCleanupsRunConcurrently(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	created := make(chan struct{}, 10)
	w.driver.OnCreate(func(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		response, err := next()
		created <- struct{}{}
		<-ctx.Done()
		return response, err
	})
	for _, name := range []string{"a", "b", "c"} {
		w.createClaim(testClaim(name))
		<-created
	}
	w.kill()
	for _, name := range []string{"a", "b", "c"} {
		w.deleteClaim(name)
	}
	// Whichever is first waits for the others.
	var waiting atomic.Int32
	all := make(chan struct{})
	w.driver.OnCreate(func(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if waiting.Add(1) == 3 {
			close(all)
		}
		select {
		case <-all:
			return next()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	w.run()
	for _, name := range []string{"a", "b", "c"} {
		w.awaitVolume("pvc-uid-" + name)
	}
}

func TestCleanupEnds(t *testing.T) {
	w := newWorld(t, func(config *Config) { config.CleanupLimit = time.Millisecond }, testClass(nil))
	w.dieAfterCreate(testClaim("data"))
	w.deleteClaim("data")
	w.driver.OnCreate(func(context.Context, *csi.CreateVolumeRequest, func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		return nil, status.Error(codes.Unavailable, "the server is down")
	})
	w.run()
	w.awaitEvent("ProvisioningCleanupFailed", "the server is down")
	w.awaitEvent("ProvisioningCleanupAbandoned", "cleanup ended after 1ms; volume pvc-uid-data may be left at CSI driver nfs.example: ")
	w.awaitEmptyJournal()
	if deletes := w.driver.Deletes(); len(deletes) != 0 {
		t.Errorf("deleted: %v", deletes)
	}
}

// Only its PersistentVolume is missing: the API server may accept it after a day.
func TestCleanupOfAnUnsavedVolumeDoesNotEnd(t *testing.T) {
	class := testClass(nil)
	class.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain)
	w := newWorld(t, func(config *Config) { config.CleanupLimit = time.Millisecond }, class)
	r := w.refusal(invalid())
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "is kept")
	w.deleteClaim("data")
	w.awaitEvent("ProvisioningCleanupFailed", "is kept")
	w.awaitRefused(r, 3)
	r.allow()
	w.awaitVolume("pvc-uid-data")
}

func TestVolumeThatWasNeverMadeIsForgotten(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.dieAfterCreate(testClaim("data"))
	w.deleteClaim("data")
	w.driver.OnCreate(answer(codes.NotFound, codes.NotFound, codes.NotFound))
	calls := len(w.driver.Creates())
	w.run()
	eventually(t, "the driver is asked", func() bool { return len(w.driver.Creates()) > calls })
	w.awaitEmptyJournal()
	if w.volume("pvc-uid-data") != nil {
		t.Error("there is a PersistentVolume")
	}
}

// stealName saves another claim's PersistentVolume under this claim's name while the
// driver creates the volume.
func stealName(w *world, handle string) drivertest.CreateHook {
	return func(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		other := releasedVolume("pvc-uid-data", func(volume *corev1.PersistentVolume) {
			volume.Spec.CSI.VolumeHandle = handle
			volume.Spec.ClaimRef.UID = types.UID("another")
			volume.Status.Phase = corev1.VolumeBound
		})
		if _, err := w.client.CoreV1().PersistentVolumes().Create(ctx, other, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		return next()
	}
}

func TestNameTakenByAnother(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.driver.OnCreate(stealName(w, "another-volume"))
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "volume is kept until its PersistentVolume can be saved: claim cannot be provisioned: PersistentVolume pvc-uid-data exists already and is not this claim's")
	if deletes := w.driver.Deletes(); len(deletes) != 0 {
		t.Errorf("the claim's volume was deleted: %v", deletes)
	}
	for _, event := range w.events() {
		if event.Reason == "ProvisioningSucceeded" {
			t.Errorf("success is reported: %s", event.Message)
		}
	}
	if err := w.client.CoreV1().PersistentVolumes().Delete(t.Context(), "pvc-uid-data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim has its volume", func() bool {
		volume := w.volume("pvc-uid-data")
		return volume != nil && volume.Spec.CSI.VolumeHandle == "id-of-pvc-uid-data"
	})
}

func TestNameTakenByAnotherAndTheClaimIsGone(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.driver.OnCreate(stealName(w, "another-volume"))
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "exists already and is not this claim's")
	w.deleteClaim("data")
	w.awaitEmptyJournal()
	if volumes := w.driver.Volumes(); len(volumes) != 0 {
		t.Errorf("left behind: %v", volumes)
	}
}

func TestNameTakenByAnotherWithTheSameVolume(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.driver.OnCreate(stealName(w, "id-of-pvc-uid-data"))
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "it is for the same volume that CSI driver nfs.example created for this claim, which was not deleted")
	if deletes := w.driver.Deletes(); len(deletes) != 0 {
		t.Errorf("another's volume was deleted: %v", deletes)
	}
}

// A try concurrent with the deletion of the claim's volume creates it anew. The
// PersistentVolume that is being deleted is not that of the new volume.
func TestNameStillTakenByTheVolumeBefore(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	var once sync.Once
	w.driver.OnCreate(func(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (response *csi.CreateVolumeResponse, err error) {
		once.Do(func() {
			now := metav1.Now()
			_, err = w.client.CoreV1().PersistentVolumes().Create(ctx, releasedVolume("pvc-uid-data", func(volume *corev1.PersistentVolume) {
				volume.DeletionTimestamp = &now
				volume.Finalizers = []string{"example.com/going"}
				volume.Spec.CSI.VolumeHandle = "id-of-pvc-uid-data"
				volume.Spec.ClaimRef.UID = "uid-data"
				volume.Status.Phase = corev1.VolumeBound
			}), metav1.CreateOptions{})
		})
		if err != nil {
			return nil, err
		}
		return next()
	})
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "PersistentVolume pvc-uid-data of the same claim is being deleted")
	w.deleteClaim("data")
	if err := w.client.CoreV1().PersistentVolumes().Delete(t.Context(), "pvc-uid-data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	volume := w.awaitVolume("pvc-uid-data")
	if volume.DeletionTimestamp != nil || len(w.driver.Volumes()) != 1 {
		t.Errorf("saved %v, the driver has %v", volume.ObjectMeta, w.driver.Volumes())
	}
}

// The same while the PersistentVolume does not look deleted yet: its volume is deleted
// at the driver, but not its object.
func TestVolumeMadeAnewBesideItsDeletion(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	deleted, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	w.driver.OnDelete(func(_ context.Context, _ *csi.DeleteVolumeRequest, next func() (*csi.DeleteVolumeResponse, error)) (*csi.DeleteVolumeResponse, error) {
		response, err := next()
		first.Do(func() {
			close(deleted)
			<-goOn
		})
		return response, err
	})
	var once sync.Once
	w.driver.OnCreate(func(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (response *csi.CreateVolumeResponse, err error) {
		once.Do(func() {
			_, err = w.client.CoreV1().PersistentVolumes().Create(ctx, releasedVolume("pvc-uid-data", func(volume *corev1.PersistentVolume) {
				volume.Spec.CSI.VolumeHandle = "id-of-pvc-uid-data"
				volume.Spec.ClaimRef.UID = "uid-data"
			}), metav1.CreateOptions{})
			<-deleted
		})
		if err != nil {
			return nil, err
		}
		return next()
	})
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "PersistentVolume pvc-uid-data of the same claim is being deleted")
	w.deleteClaim("data")
	w.awaitEvent("ProvisioningCleanupFailed", "PersistentVolume pvc-uid-data of the same claim is being deleted")
	close(goOn)
	eventually(t, "the volume made anew has a PersistentVolume of its own", func() bool {
		volume := w.volume("pvc-uid-data")
		return volume != nil && volume.Status.Phase == "" && len(w.driver.Volumes()) == 1
	})
}

// A volume in use must not be deleted when the driver returns it for another claim.
func TestUnusableVolumeThatIsAnothers(t *testing.T) {
	w := newWorld(t, nil, testClass(nil), releasedVolume("static", func(volume *corev1.PersistentVolume) {
		volume.Spec.CSI.VolumeHandle = "in-use"
		volume.Status.Phase = corev1.VolumeBound
	}))
	w.driver.OnCreate(respond(&csi.Volume{VolumeId: "in-use", CapacityBytes: 1}))
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "it was not deleted, as PersistentVolume static is for the same volume")
	if deletes := w.driver.Deletes(); len(deletes) != 0 {
		t.Errorf("another's volume was deleted: %v", deletes)
	}
}

// The cache still has the claim after it and its volume are gone.
func TestStaleClaimGetsNoVolume(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	claim := testClaim("data")
	w.createClaim(claim)
	volume := w.awaitVolume("pvc-uid-data")
	prepend(w.client, "get", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), "data")
	})
	volume.Status.Phase = corev1.VolumeReleased
	if _, err := w.client.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), volume, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitGone("pvc-uid-data")
	w.touchClaim(claim, "stale")
	// Processed after the stale claim by the same queue.
	w.createClaim(testClaim("next"))
	w.awaitVolume("pvc-uid-next")
	if volumes := w.driver.Volumes(); volumes["pvc-uid-data"] != nil {
		t.Error("a claim that is gone got a volume")
	}
}

func TestClaimBeingDeletedGetsNoVolume(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.createClaim(testClaim("data", func(claim *corev1.PersistentVolumeClaim) {
		claim.DeletionTimestamp = new(metav1.Now())
		claim.Finalizers = []string{"example.com/hold"}
	}))
	w.createClaim(testClaim("next"))
	w.awaitVolume("pvc-uid-next")
	if volumes := w.driver.Volumes(); len(volumes) != 1 {
		t.Errorf("the driver has %v", volumes)
	}
}

// The existing volume is found under another prefix.
func TestOtherPrefixIsFoundAgain(t *testing.T) {
	naming, err := plan.NewNaming("vol", 12)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(config *Config) { config.Naming = naming }, testClass(nil))
	claim := testClaim("data", func(claim *corev1.PersistentVolumeClaim) { claim.UID = "0b6f4e1c-6a3e-4f5e-9a52-1d2c3b4a5f60" })
	w.createClaim(claim)
	w.awaitVolume("vol-0b6f4e1c6a3e")
	w.kill()
	w.run()
	w.touchClaim(claim, "again")
	w.createClaim(testClaim("next"))
	w.awaitVolume("vol-uidnext")
	if calls := len(w.driver.Creates()); calls != 2 {
		t.Errorf("%d calls for two volumes", calls)
	}
}

func TestEventsSayWhenTheNextTryIs(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.driver.OnCreate(answer(codes.Internal, codes.Internal, codes.Internal, codes.Internal, codes.Internal, codes.Internal, codes.Internal, codes.Internal))
	w.createClaim(testClaim("data"))
	w.awaitVolume("pvc-uid-data")
	for _, delay := range []string{"1ms", "2ms", "4ms", "16ms", "20ms"} {
		w.awaitEvent("ProvisioningFailed", "scripted failure; next try in "+delay)
	}
	failed := 0
	for _, event := range w.events() {
		if event.Reason == "ProvisioningFailed" && strings.Contains(event.Message, "20ms") {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d events say the same", failed)
	}
}
