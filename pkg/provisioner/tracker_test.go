package provisioner

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/journal"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// entries is the journal that the next process would find.
func (w *world) entries(ctx context.Context) (*journal.Journal, error) {
	return journal.Open(ctx, w.provisioner.journalConfig(record.NewFakeRecorder(10)))
}

// entry is the journal entry that the next process would find.
func (w *world) entry(name string) *plan.Creation {
	w.Helper()
	notes, err := w.entries(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	entry, err := notes.Entry(name)
	if err != nil {
		w.Fatal(err)
	}
	creation, err := plan.RestoreCreation(entry.Data, entry.Lists)
	if err != nil {
		w.Fatal(err)
	}
	return creation
}

func (w *world) awaitEmptyJournal() {
	w.Helper()
	eventually(w.T, "the journal is empty, and was not before", func() bool {
		if _, err := w.client.CoreV1().ConfigMaps("nfs-csi").Get(w.Context(), "csi-provisioner-test.0", metav1.GetOptions{}); err != nil {
			return false
		}
		notes, err := w.entries(w.Context())
		return err == nil && len(notes.Entries()) == 0
	})
}

// dieAfterSave leaves a volume with a PersistentVolume and with its journal entry.
func (w *world) dieAfterSave(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	w.Helper()
	var dying atomic.Bool
	prepend(w.client, "create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		dying.Store(true)
		return false, nil, nil
	})
	prepend(w.client, "update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if dying.Load() {
			return true, nil, apierrors.NewInternalError(errors.New("the process has died"))
		}
		return false, nil, nil
	})
	w.createClaim(claim)
	volume := w.awaitVolume("pvc-" + string(claim.UID))
	w.kill()
	dying.Store(false)
	w.entry(volume.Name)
	return volume
}

// The next process starts with the deletion of a volume that the journal still has.
func TestDiedBeforeTheEntryWasRemoved(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolume){
		"claim deleted": func(*corev1.PersistentVolume) {},
		"both deleted": func(volume *corev1.PersistentVolume) {
			volume.DeletionTimestamp = new(metav1.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, testClass(nil))
			volume := w.dieAfterSave(testClaim("data"))
			w.deleteClaim("data")
			volume.Status.Phase = corev1.VolumeReleased
			change(volume)
			if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumes"), volume, ""); err != nil {
				t.Fatal(err)
			}
			// A process that dies during the deletion must not leave the entry behind either.
			noted := make(chan int, 10)
			w.driver.OnDelete(func(ctx context.Context, _ *csi.DeleteVolumeRequest, next func() (*csi.DeleteVolumeResponse, error)) (*csi.DeleteVolumeResponse, error) {
				notes, err := w.entries(ctx)
				if err != nil {
					return nil, err
				}
				noted <- len(notes.Entries())
				return next()
			})
			w.run()
			w.awaitGone("pvc-uid-data")
			if left := <-noted; left != 0 {
				t.Errorf("the volume was deleted with %d journal entries left", left)
			}
			w.wantCalls(1, 1)
			if volumes := w.driver.Volumes(); len(volumes) != 0 {
				t.Errorf("the driver has %v", volumes)
			}
		})
	}
}

func TestEntriesRecordTheirAge(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	before := metav1.Now().Rfc3339Copy()
	r := w.refusal(invalid())
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "is kept")
	began := w.entry("pvc-uid-data").Began
	if now := metav1.Now(); began.Before(before.Time) || began.After(now.Time) {
		t.Errorf("it began at %s, which is not between %s and %s", began, before, now)
	}
	w.kill()
	w.run()
	w.awaitRefused(r, 1)
	if again := w.entry("pvc-uid-data").Began; !again.Equal(began) {
		t.Errorf("it began at %s and, after a restart, at %s", began, again)
	}
}

// backdate sets the age of an entry.
func (w *world) backdate(name string, age time.Duration) time.Time {
	w.Helper()
	creation := w.entry(name)
	creation.Began = time.Now().UTC().Add(-age).Truncate(time.Second)
	data, _, err := creation.Store()
	if err != nil {
		w.Fatal(err)
	}
	notes, err := w.entries(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() { notes.Run(ctx) })
	defer running.Wait()
	defer cancel()
	if err := notes.Amend(ctx, name, data); err != nil {
		w.Fatal(err)
	}
	return creation.Began
}

// Each try continues the entry of the first, also when it records the response.
func TestEntriesKeepTheirAge(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.dieAfterCreate(testClaim("data"))
	began := w.backdate("pvc-uid-data", time.Hour)
	w.refusal(invalid())
	w.run()
	w.awaitEvent("ProvisioningFailed", "is kept")
	if got := w.entry("pvc-uid-data"); !got.Began.Equal(began) || got.Handle() != "id-of-pvc-uid-data" {
		t.Errorf("recorded is %q since %s, want since %s", got.Handle(), got.Began, began)
	}
}
