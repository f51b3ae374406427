package plan

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
)

func savedVolume(claim, driver, handle string) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{}
	volume.Spec.ClaimRef = &corev1.ObjectReference{}
	volume.Spec.ClaimRef.UID = testClaim().UID
	if claim != "" {
		volume.Spec.ClaimRef.UID = "other"
	}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}
	return volume
}

func TestSaved(t *testing.T) {
	ours := savedVolume("", "nfs.example", "a")
	unclaimed := savedVolume("", "nfs.example", "a")
	unclaimed.Spec.ClaimRef = nil
	translated := savedVolume("", "nfs.example", "a")
	translated.Spec.CSI = nil
	tests := map[string]struct {
		existing      *corev1.PersistentVolume
		saved, shares bool
	}{
		"the same":                  {savedVolume("", "nfs.example", "a"), true, true},
		"another's":                 {savedVolume("other", "nfs.example", "b"), false, false},
		"another's, same volume":    {savedVolume("other", "nfs.example", "a"), false, true},
		"another driver's":          {savedVolume("", "other", "a"), false, false},
		"another volume of ours":    {savedVolume("", "nfs.example", "b"), false, false},
		"nobody's":                  {unclaimed, false, true},
		"ours as an in-tree volume": {translated, true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if saved, shares := Saved(test.existing, ours), SharesVolume(test.existing, ours); saved != test.saved || shares != test.shares {
				t.Errorf("saved %v, shares %v, want %v, %v", saved, shares, test.saved, test.shares)
			}
		})
	}
}

func TestAbandoned(t *testing.T) {
	by := func(volume *corev1.PersistentVolume, process string) *corev1.PersistentVolume {
		volume.Spec.CSI.VolumeAttributes = map[string]string{IdentityAttribute: process}
		return volume
	}
	going := func(process string) *corev1.PersistentVolume {
		volume := by(savedVolume("", "nfs.example", "a"), process)
		volume.DeletionTimestamp = new(metav1.Now())
		return volume
	}
	template := by(savedVolume("", "nfs.example", ""), "process-1")
	bound := testClaim(func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = "static" })
	tests := map[string]struct {
		volume *corev1.PersistentVolume
		claim  *corev1.PersistentVolumeClaim
		want   Remains
	}{
		"saved":                        {savedVolume("", "nfs.example", "a"), bound, RemainsSaved},
		"saved, claim gone":            {savedVolume("", "nfs.example", "a"), nil, RemainsSaved},
		"claim waits":                  {nil, testClaim(), RemainsWanted},
		"claim is gone":                {nil, nil, RemainsOrphaned},
		"a new claim of the name":      {nil, testClaim(func(claim *corev1.PersistentVolumeClaim) { claim.UID = "new" }), RemainsOrphaned},
		"claim has another volume":     {nil, bound, RemainsOrphaned},
		"another's volume, claim gone": {savedVolume("other", "nfs.example", "b"), nil, RemainsOrphaned},
		"saved, both deleted":          {going("process-1"), nil, RemainsSaved},
		"of an earlier try, going":     {going("process-0"), nil, RemainsOrphaned},
		"of nobody knows who, going":   {going(""), nil, RemainsOrphaned},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Abandoned(test.volume, test.claim, template); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestNextTryIsTheQueues(t *testing.T) {
	for _, longest := range []time.Duration{time.Second, 5 * time.Minute, 7 * time.Second, 20 * time.Second} {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, longest)
		for failures := range 70 {
			got := NextTry(time.Second, longest, failures)
			if want := limiter.When("item"); got != want {
				t.Fatalf("after %d failures, at most %s: %s, the queue waits %s", failures, longest, got, want)
			}
		}
	}
}

func TestRetried(t *testing.T) {
	long := errors.New(strings.Repeat("é", 1000))
	if got := Retried(long, 4*time.Second).Error(); len(got) > maxMessageBytes || !strings.HasSuffix(got, "...; next try in 4s") {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
}

func TestStoredCreation(t *testing.T) {
	class := testClass(allSecrets())
	creation, err := NewCreation(testOptions(), testClaim(), class, "pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	creation.Origin = Origin{SnapshotOrigin, "team-a", "s"}
	creation.Request.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "handle"},
	}}
	creation.Began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	zones := topologies([]Segment{{"zone": "a"}, {"zone": "b"}})
	creation.Request.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: zones, Preferred: []*csi.Topology{zones[1], zones[0]}}
	data, lists, err := creation.Store()
	if err != nil {
		t.Fatal(err)
	}
	if creation.Request.AccessibilityRequirements == nil || strings.Contains(string(data), "zone") || !slices.Equal(lists["preferred"], []string{`{"zone":"b"}`, `{"zone":"a"}`}) {
		t.Errorf("the topologies are %v, apart from %s", lists, data)
	}
	if began := BeganAt(data); !began.Equal(creation.Began) {
		t.Errorf("it began at %s, want %s", began, creation.Began)
	}
	got, err := RestoreCreation(data, lists)
	if err != nil {
		t.Fatal(err)
	}
	response := &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "a", ContentSource: creation.Request.VolumeContentSource}}
	want, err := creation.Volume(response)
	if err != nil {
		t.Fatal(err)
	}
	volume, err := got.Volume(response)
	if err != nil {
		t.Fatal(err)
	}
	size, wantSize := volume.Spec.Capacity[corev1.ResourceStorage], want.Spec.Capacity[corev1.ResourceStorage]
	if size.Cmp(wantSize) != 0 {
		t.Errorf("size %s, want %s", size.String(), wantSize.String())
	}
	volume.Spec.Capacity = want.Spec.Capacity
	if !reflect.DeepEqual(volume, want) || !proto.Equal(got.Request, creation.Request) || got.Secret != creation.Secret || got.Origin != creation.Origin ||
		!got.Began.Equal(creation.Began) || got.Response != nil || got.Handle() != "" {
		t.Errorf("got  %v\nwant %v", got, creation)
	}
	if _, err := creation.Volume(&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "a"}}); !errors.Is(err, ErrResponse) {
		t.Errorf("an empty volume in place of a restored one: %v", err)
	}
	for _, broken := range []string{"", "{}", "null", strings.Replace(string(data), `{"request"`, `{"made":{"volume":7},"request"`, 1), `{"request":{}}`, `{"request":{"name":"a"},"volume":{}}`} {
		if _, err := RestoreCreation([]byte(broken), lists); err == nil {
			t.Errorf("%q was taken for a stored volume", broken)
		}
	}
	for _, name := range []string{requisiteList, preferredList} {
		if _, err := RestoreCreation(data, map[string][]string{name: {"7"}}); err == nil {
			t.Errorf("7 was taken for a %s topology", name)
		}
	}
}

func TestStoredAnswer(t *testing.T) {
	creation, err := NewCreation(testOptions(), testClaim(), testClass(nil), "pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	creation.Response = &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: "a", CapacityBytes: 1 << 30, VolumeContext: map[string]string{"server": "s"},
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"zone": "z"}}},
	}}
	data, topologies, err := creation.Store()
	if err != nil {
		t.Fatal(err)
	}
	got, err := RestoreCreation(data, topologies)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got.Response, creation.Response) || got.Handle() != "a" {
		t.Errorf("got %v, want %v", got.Response, creation.Response)
	}
}

// A version that stored the topologies in the request.
func TestStoredWithItsTopologies(t *testing.T) {
	data := []byte(`{"request":{"name":"pvc-1","accessibilityRequirements":{"requisite":[{"segments":{"zone":"a"}}]}},"volume":{"spec":{"csi":{"driver":"d"},"claimRef":{"uid":"u"}}}}`)
	got, err := RestoreCreation(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := got.Store()
	if requisite := got.Request.GetAccessibilityRequirements().GetRequisite(); err != nil || len(requisite) != 1 || !slices.Equal(lists["requisite"], []string{`{"zone":"a"}`}) {
		t.Errorf("the topologies are %v, stored %v, %v", requisite, lists, err)
	}
}

// A journal entry of a version that recorded neither age nor response.
func TestStoredByAnEarlierVersion(t *testing.T) {
	data := []byte(`{"request":{"name":"pvc-1"},"volume":{"metadata":{"name":"pvc-1"},"spec":{"csi":{"driver":"d","volumeHandle":""},"claimRef":{"uid":"u"}}}}`)
	got, err := RestoreCreation(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Began.IsZero() || got.Since() != "unknown" || got.Response != nil || !BeganAt(data).IsZero() {
		t.Errorf("began %s, since %s, made %v", got.Began, got.Since(), got.Response)
	}
}

func TestMayDeleteUnsaved(t *testing.T) {
	retained := savedVolume("", "nfs.example", "")
	retained.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	volume := savedVolume("", "nfs.example", "")
	volume.Name, retained.Name = "pvc-1", "pvc-1"
	volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	bound := func(name string) *corev1.PersistentVolumeClaim {
		return testClaim(func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = name })
	}
	for name, test := range map[string]struct {
		template *corev1.PersistentVolume
		claim    *corev1.PersistentVolumeClaim
		want     bool
	}{
		"claim gone":                  {volume, nil, true},
		"claim has another volume":    {volume, bound("static"), true},
		"a new claim of the name":     {volume, testClaim(), true},
		"a claim is to have this one": {volume, bound(volume.Name), false},
		"to be retained":              {retained, nil, false},
	} {
		if got := MayDeleteUnsaved(test.template, test.claim); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
