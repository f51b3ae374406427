package provisioner

import (
	"errors"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// refusal makes the API server refuse PersistentVolumes for a while.
type refusal struct {
	err   atomic.Pointer[error]
	tries atomic.Int32
}

func (r *refusal) refuse(err error) { r.err.Store(&err) }
func (r *refusal) allow()           { r.err.Store(nil) }

func (w *world) refusal(err error) *refusal {
	r := &refusal{}
	r.refuse(err)
	prepend(w.client, "create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := r.err.Load(); err != nil {
			r.tries.Add(1)
			return true, nil, *err
		}
		return false, nil, nil
	})
	return r
}

// invalid is the error of a ValidatingAdmissionPolicy without a reason.
func invalid() error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PersistentVolume").GroupKind(), "pvc-uid-data", nil)
}

func (w *world) wantCalls(creates, deletes int) {
	w.Helper()
	if c, d := len(w.driver.Creates()), len(w.driver.Deletes()); c != creates || d != deletes {
		w.Errorf("CreateVolume was called %d times and DeleteVolume %d times, want %d and %d", c, d, creates, deletes)
	}
}

// awaitRefused waits until more tries have been refused.
func (w *world) awaitRefused(r *refusal, more int32) {
	w.Helper()
	before := r.tries.Load()
	eventually(w.T, "saving is tried on", func() bool { return r.tries.Load() >= before+more })
}

func TestVolumeThatTheAPIServerRefusesIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		says string
	}{
		"invalid":   {invalid(), "the API server refuses PersistentVolume pvc-uid-data: PersistentVolume \"pvc-uid-data\" is invalid"},
		"forbidden": {apierrors.NewForbidden(corev1.Resource("persistentvolumes"), "pvc-uid-data", errors.New("label it")), "label it; next try in 20ms"},
		"broken":    {apierrors.NewInternalError(errors.New("a webhook is away")), "save PersistentVolume pvc-uid-data: Internal error occurred: a webhook is away"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, testClass(nil))
			r := w.refusal(test.err)
			w.createClaim(testClaim("data"))
			w.awaitEvent("ProvisioningFailed", "volume is kept until its PersistentVolume can be saved: ")
			w.awaitEvent("ProvisioningFailed", test.says)
			w.awaitRefused(r, 3)
			r.allow()
			w.awaitVolume("pvc-uid-data")
			w.awaitEmptyJournal()
			w.wantCalls(1, 0)
		})
	}
}

func TestVolumeThatIsRefusedOutlivesTheProcess(t *testing.T) {
	w := newWorld(t, nil, testClass(map[string]string{"server": "a"}))
	r := w.refusal(invalid())
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "is kept")
	w.kill()
	w.run()
	w.awaitRefused(r, 3)
	r.allow()
	if got := w.awaitVolume("pvc-uid-data").Spec.CSI.VolumeAttributes["server"]; got != "a" {
		t.Errorf("the driver's volume context is lost: server is %q", got)
	}
	w.awaitEmptyJournal()
	w.wantCalls(1, 0)
}

func TestVolumeThatIsRefusedOfADeletedClaim(t *testing.T) {
	for name, refused := range map[string]error{
		"invalid":   invalid(),
		"forbidden": apierrors.NewForbidden(corev1.Resource("persistentvolumes"), "pvc-uid-data", errors.New("label it")),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, testClass(nil))
			r := w.refusal(refused)
			w.createClaim(testClaim("data"))
			w.awaitEvent("ProvisioningFailed", "is kept")
			w.deleteClaim("data")
			w.awaitEmptyJournal()
			w.wantCalls(1, 1)
			if volumes := w.driver.Volumes(); len(volumes) != 0 {
				t.Errorf("left behind: %v", volumes)
			}
			// The queue knows the deleted claim, and processes it before the next one.
			r.allow()
			w.createClaim(testClaim("next"))
			w.awaitVolume("pvc-uid-next")
			eventually(t, "the queue is empty", func() bool { return w.provisioning("uid-data") == 0 })
			w.wantCalls(2, 1)
		})
	}
}

// provisioning is the number of failures of a claim that the queue counts.
func (w *world) provisioning(uid string) int { return w.provisioner.retries.NumRequeues(uid) }

func TestVolumeThatIsRefusedAndRetained(t *testing.T) {
	class := testClass(nil)
	class.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain)
	w := newWorld(t, nil, class)
	r := w.refusal(invalid())
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "is kept")
	w.deleteClaim("data")
	w.awaitEvent("ProvisioningCleanupFailed", "clean up after a deleted claim: volume is kept")
	r.allow()
	w.awaitVolume("pvc-uid-data")
	w.wantCalls(1, 0)
}

// As after a restore from a backup: the claim has the volume's name and another UID.
func TestVolumeThatIsRefusedAndAClaimCountsOn(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	r := w.refusal(invalid())
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "is kept")
	w.kill()
	w.deleteClaim("data")
	w.createClaim(testClaim("data", func(claim *corev1.PersistentVolumeClaim) {
		claim.UID, claim.Spec.VolumeName = "restored", "pvc-uid-data"
	}))
	w.run()
	w.awaitEvent("ProvisioningCleanupFailed", "volume is kept")
	r.allow()
	w.awaitVolume("pvc-uid-data")
	w.wantCalls(1, 0)
}

// byHand is a PersistentVolume that somebody has created for the volume of a claim.
func byHand(phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	return releasedVolume("by-hand", func(volume *corev1.PersistentVolume) {
		volume.Spec.CSI.VolumeHandle = "id-of-pvc-uid-data"
		volume.Status.Phase = phase
	})
}

func TestEntryOfAVolumeThatAPersistentVolumeHas(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	r := w.refusal(invalid())
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "is kept")
	w.kill()
	w.deleteClaim("data")
	if err := w.client.Tracker().Add(byHand(corev1.VolumeBound)); err != nil {
		t.Fatal(err)
	}
	r.allow()
	w.run()
	w.awaitEmptyJournal()
	w.wantCalls(1, 0)
	if w.volume("pvc-uid-data") != nil {
		t.Error("the volume has a second PersistentVolume")
	}
}

// The driver is called again if the process died before it had the response.
func TestEntryWithoutAResponseOfAVolumeThatAPersistentVolumeHas(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.dieAfterCreate(testClaim("data"))
	w.deleteClaim("data")
	if err := w.client.Tracker().Add(byHand(corev1.VolumeBound)); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.awaitEmptyJournal()
	w.wantCalls(2, 0)
	if w.volume("pvc-uid-data") != nil {
		t.Error("the volume has a second PersistentVolume")
	}
}

// The claim still waits for its volume when somebody creates a PersistentVolume for it,
// and deletes it together with the volume.
func TestVolumeThatIsRefusedAndDeletedByHand(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	r := w.refusal(invalid())
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "is kept")
	volume := byHand(corev1.VolumeBound)
	if err := w.client.Tracker().Add(volume); err != nil {
		t.Fatal(err)
	}
	w.awaitEvent("ProvisioningFailed", "another PersistentVolume is for the volume that CSI driver nfs.example created for this claim: by-hand")
	r.allow()
	volume.Status.Phase = corev1.VolumeReleased
	if _, err := w.client.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), volume, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitGone("by-hand")
	w.awaitVolume("pvc-uid-data")
	// A call is repeated as long as the cache has the PersistentVolume that is gone.
	if c, d := len(w.driver.Creates()), len(w.driver.Deletes()); c < 2 || d != 1 {
		t.Errorf("CreateVolume was called %d times and DeleteVolume %d times, want 2 or more and 1", c, d)
	}
	if volumes := w.driver.Volumes(); volumes["pvc-uid-data"] == nil {
		t.Errorf("the claim's PersistentVolume is for none of %v", volumes)
	}
}

// The claim is gone too, and the deletion of the PersistentVolume takes a while.
func TestVolumeOfAPersistentVolumeThatIsGoing(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	r := w.refusal(invalid())
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "is kept")
	w.kill()
	w.deleteClaim("data")
	if err := w.client.Tracker().Add(byHand(corev1.VolumeReleased)); err != nil {
		t.Fatal(err)
	}
	var goes atomic.Bool
	prepend(w.client, "delete", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !goes.Load(), nil, errors.New("the API server is away")
	})
	r.allow()
	w.run()
	w.awaitEvent("ProvisioningCleanupFailed", "PersistentVolume by-hand, which is for the same volume, is being deleted")
	if w.volume("pvc-uid-data") != nil {
		t.Error("a volume that is being deleted has got another PersistentVolume")
	}
	goes.Store(true)
	w.awaitGone("by-hand")
	w.awaitVolume("pvc-uid-data")
	if volumes := w.driver.Volumes(); volumes["pvc-uid-data"] == nil {
		t.Errorf("the PersistentVolume is for none of %v", volumes)
	}
}
