package provisioner

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clienttesting "k8s.io/client-go/testing"
)

// refuseConfigMaps has the API server refuse them while the flag is set.
func (w *world) refuseConfigMaps(verbs ...string) *atomic.Bool {
	refused := &atomic.Bool{}
	refused.Store(true)
	for _, verb := range verbs {
		prepend(w.client, verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refused.Load(), nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "j", nil)
		})
	}
	return refused
}

// wantMetrics waits until the metrics of the journal have these values.
func (w *world) wantMetrics(failing, unrecorded float64) {
	w.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.provisioner.Collectors()...)
	eventually(w.T, fmt.Sprintf("failing is %g, and %g volumes are unrecorded", failing, unrecorded), func() bool {
		families, err := registry.Gather()
		if err != nil {
			w.Fatal(err)
		}
		values := map[string]float64{}
		for _, family := range families {
			metric := family.GetMetric()[0]
			values[family.GetName()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
		return values["csi_provisioner_journal_failing"] == failing && values["csi_provisioner_journal_unrecorded_volumes_total"] == unrecorded
	})
}

func TestVolumesWithoutAWritableJournal(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.createClaim(testClaim("before"))
	w.awaitVolume("pvc-uid-before")
	w.wantMetrics(0, 0)
	refused := w.refuseConfigMaps("create", "update")
	for _, name := range []string{"a", "b"} {
		w.createClaim(testClaim(name))
		w.awaitVolume("pvc-uid-" + name)
	}
	w.awaitEvent("JournalNotWritten", "left behind")
	w.wantMetrics(1, 2)
	w.kill()
	refused.Store(false)
	w.run()
	w.createClaim(testClaim("after"))
	w.awaitVolume("pvc-uid-after")
	w.awaitEmptyJournal()
	w.wantMetrics(0, 0)
}

func TestNothingIsMadeByAProcessThatDoesNotLead(t *testing.T) {
	w := newWorld(t, func(config *Config) { config.Journal.Leading = func() bool { return false } }, testClass(nil))
	w.createClaim(testClaim("before"))
	w.awaitVolume("pvc-uid-before")
	w.refuseConfigMaps("create", "update")
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "cannot record the volume in the journal")
	w.wantCalls(1, 0)
}

// The journal of an earlier version is in one ConfigMap, with the topologies in each
// entry (testdata/former-journal.yaml).
func TestFormerJournal(t *testing.T) {
	text, err := os.ReadFile("testdata/former-journal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	former := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(text, former); err != nil {
		t.Fatal(err)
	}
	saved := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-uid-saved"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef:               &corev1.ObjectReference{Namespace: "team-a", Name: "saved", UID: "uid-saved"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "id-of-pvc-uid-saved"}},
	}}
	w := newWorld(t, func(config *Config) { config.Journal.Former = former.Name },
		testClass(nil), former, saved, testClaim("placed"), testClaim("made"))
	placed, made := w.awaitVolume("pvc-uid-placed"), w.awaitVolume("pvc-uid-made")
	if handle := made.Spec.CSI.VolumeHandle; handle != "id-of-pvc-uid-made" {
		t.Errorf("the volume that was made has become %s", handle)
	}
	creates := w.driver.Creates()
	if len(creates) != 1 || creates[0].GetName() != placed.Name {
		t.Fatalf("the driver was called for %v", creates)
	}
	requirement := creates[0].GetAccessibilityRequirements()
	if requisite, preferred := requirement.GetRequisite(), requirement.GetPreferred(); len(requisite) != 40 || len(preferred) != 40 ||
		preferred[0].GetSegments()["topology.example/node"] != "node-17" || requisite[39].GetSegments()["topology.example/zone"] != "zone-0" {
		t.Errorf("the request is for %v", requirement)
	}
	eventually(t, "the former journal is deleted", func() bool {
		_, err := w.client.CoreV1().ConfigMaps("nfs-csi").Get(t.Context(), former.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	w.awaitEmptyJournal()
}

// The journal of a node goes with it.
func TestJournalOfANodeHasAnOwner(t *testing.T) {
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: types.UID("uid-of-node-a")}}
	other := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-b", UID: types.UID("uid-of-node-b")}}
	a, b := newNodes(t, lateClass(), csiNode, other)
	runNodes(t, a, b)
	a.createClaim(testClaim("data", onNode("node-a")))
	a.awaitVolume("pvc-uid-data")
	object, err := a.client.CoreV1().ConfigMaps("nfs-csi").Get(t.Context(), a.config.Journal.Name+".0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []metav1.OwnerReference{{APIVersion: "storage.k8s.io/v1", Kind: "CSINode", Name: "node-a", UID: "uid-of-node-a"}}
	if !slices.Equal(object.OwnerReferences, want) {
		t.Errorf("its owners are %v, want %v", object.OwnerReferences, want)
	}
}

// Without its CSINode, or without permission to look it up, it has no owner.
func TestJournalOfANodeWithoutOwner(t *testing.T) {
	for name, err := range map[string]error{
		"no CSINode":    nil,
		"no permission": apierrors.NewForbidden(storagev1.Resource("csinodes"), "", errors.New("no")),
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := newNodes(t, lateClass())
			prepend(a.client, "list", "csinodes", func(clienttesting.Action) (bool, runtime.Object, error) { return err != nil, nil, err })
			runNodes(t, a)
			a.createClaim(testClaim("data", onNode("node-a")))
			a.awaitVolume("pvc-uid-data")
			object, err := a.client.CoreV1().ConfigMaps("nfs-csi").Get(t.Context(), a.config.Journal.Name+".0", metav1.GetOptions{})
			if err != nil || object.OwnerReferences != nil {
				t.Errorf("its owners are %v, %v", object.OwnerReferences, err)
			}
		})
	}
}
