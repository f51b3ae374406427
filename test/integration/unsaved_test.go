package integration

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/journal"
)

// wantCalls holds the driver's calls to these numbers.
func (w *world) wantCalls(creates, deletes int) {
	w.Helper()
	if c, d := len(w.driver.Creates()), len(w.driver.Deletes()); c != creates || d != deletes {
		w.Errorf("CreateVolume was called %d times and DeleteVolume %d times, want %d and %d", c, d, creates, deletes)
	}
}

// note is what the journal has of an unfinished volume, as docs/provisioner.md says.
type note struct {
	Began time.Time `json:"began"`
	Made  struct {
		Volume struct {
			VolumeID string `json:"volumeId"`
		} `json:"volume"`
	} `json:"made"`
}

// notes are what the journal has, by volume.
func (w *world) notes() (map[string]*note, error) {
	configMaps := w.client.CoreV1().ConfigMaps(w.account.namespace)
	// Without the first ConfigMap nothing has been noted yet.
	if _, err := configMaps.Get(w.Context(), w.journal()+".0", metav1.GetOptions{}); err != nil {
		return nil, err
	}
	entries, err := journal.Open(w.Context(), journal.Config{
		Client: configMaps, Namespace: w.account.namespace, Name: w.journal(), Shards: 4, Events: record.NewFakeRecorder(10),
	})
	if err != nil {
		return nil, err
	}
	notes := map[string]*note{}
	for name, data := range entries.Entries() {
		notes[name] = &note{}
		if err := json.Unmarshal(data, notes[name]); err != nil {
			return nil, err
		}
	}
	return notes, nil
}

func (w *world) awaitEmptyJournal() {
	w.Helper()
	w.eventually("the journal is empty", func() error {
		notes, err := w.notes()
		if err == nil && len(notes) > 0 {
			err = fmt.Errorf("it has %v", notes)
		}
		return err
	})
}

const refused = "volume is kept until its PersistentVolume can be saved: the API server refuses PersistentVolume "

// refusedClaim has its volume made and its PersistentVolume refused.
func (w *world) refusedClaim() (policy, *replica, *corev1.PersistentVolumeClaim) {
	w.Helper()
	began := time.Now()
	p := w.refuseVolumes()
	r := w.start("--retry-interval-max=200ms")
	claim := w.createClaim("data")
	w.awaitEvent("data", "ProvisioningFailed", refused+"pvc-"+string(claim.UID))
	w.awaitEvent("data", "ProvisioningFailed", policyMessage+"; next try in 200ms")
	p.awaitRefusals(3)
	w.wantCalls(1, 0)
	notes, err := w.notes()
	made := notes["pvc-"+string(claim.UID)]
	if err != nil || made == nil {
		w.Fatalf("it is not noted: %v, %v", notes, err)
	}
	if handle := made.Made.Volume.VolumeID; handle != "id-of-pvc-"+string(claim.UID) || made.Began.Before(began.Add(-time.Second)) || made.Began.After(time.Now()) {
		w.Errorf("the note is of %q, since %s", handle, made.Began)
	}
	return p, r, claim
}

func TestPolicyRefusesTheVolumeForAWhile(t *testing.T) {
	w := newWorld(t)
	p, r, _ := w.refusedClaim()
	w.awaitMetrics(r, "csi_provisioner_journal_entries 1\n", "csi_provisioner_journal_unsaved_volumes 1\n")
	p.allow()
	w.awaitBound("data")
	w.awaitMetrics(r, "csi_provisioner_journal_entries 0\n", "csi_provisioner_journal_unsaved_volumes 0\n", "csi_provisioner_journal_oldest_entry_age_seconds 0\n")
	w.wantCalls(1, 0)
	w.settled()
}

func TestKilledWhileAPolicyRefusesTheVolume(t *testing.T) {
	w := newWorld(t)
	p, first, _ := w.refusedClaim()
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	second := w.start("--retry-interval-max=200ms")
	p.awaitRefusals(3)
	w.awaitMetrics(second, "csi_provisioner_journal_unsaved_volumes 1\n")
	p.allow()
	w.awaitBound("data")
	w.awaitEmptyJournal()
	w.wantCalls(1, 0)
	w.settled()
}

func TestClaimDeletedWhileAPolicyRefusesItsVolume(t *testing.T) {
	w := newWorld(t)
	p, _, _ := w.refusedClaim()
	w.deleteClaim("data")
	w.awaitEmptyJournal()
	w.settled()
	w.wantCalls(1, 1)
	// The next claim's turn comes after whatever the deleted one has left in the queue.
	p.allow()
	w.createClaim("next")
	w.awaitBound("next")
	w.settled()
	w.wantCalls(2, 1)
}

// Somebody makes a PersistentVolume of the volume, while no csi-provisioner runs and
// its note says that it is unfinished.
func TestEntryWhoseHandleAPersistentVolumeHas(t *testing.T) {
	w := newWorld(t)
	p, first, claim := w.refusedClaim()
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	p.allow()
	w.deleteClaim("data")
	byHand := w.volumeOf("by-hand-"+w.name, "id-of-pvc-"+string(claim.UID))
	if _, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), byHand, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.awaitEmptyJournal()
	w.wantCalls(1, 0)
	if volumes := w.volumes(); len(volumes) != 1 || volumes[0].Name != byHand.Name {
		t.Errorf("there are %v, want %s alone", volumes, byHand.Name)
	}
}

// dieAfterSave leaves a volume with a PersistentVolume and with its note: the process
// cannot take that back before it is killed.
func (w *world) dieAfterSave() (volume *corev1.PersistentVolume) {
	w.Helper()
	entered, open := w.slow()
	first := w.start()
	w.createClaim("data")
	w.receive(entered)
	w.forbidJournal()
	open()
	volume = w.awaitBound("data")
	w.eventually("the note cannot be taken back", func() error { return logged(first, "Provisioning without the journal") })
	if err := first.Kill(); err != nil {
		w.Fatal(err)
	}
	w.driver.OnCreate(nil)
	w.bind(w.account.namespace, "Role", "journal-"+w.name)
	w.eventually("the journal can be written again", func() error { return w.mayWriteJournal(true) })
	if notes, err := w.notes(); err != nil || notes[volume.Name] == nil {
		w.Fatalf("the journal has %v, %v", notes, err)
	}
	return volume
}

func TestEntryOfASavedVolume(t *testing.T) {
	w := newWorld(t)
	w.dieAfterSave()
	w.start()
	w.awaitEmptyJournal()
	w.wantCalls(1, 0)
	w.settled()
}

func TestEntryOfADeletedClaimAndVolume(t *testing.T) {
	w := newWorld(t)
	volume := w.dieAfterSave()
	w.deleteClaim("data")
	w.deleteVolume(volume.Name)
	w.start()
	w.awaitVolumeGone(volume.Name)
	w.awaitEmptyJournal()
	w.wantCalls(1, 1)
	w.settled()
}
