package plan

import (
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

func testNode() Node {
	return Node{Name: "n1", Segment: Segment{"host": "n1"}, Immediate: true}
}

func selected(node string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations = map[string]string{SelectedNodeAnnotation: node}
	}
}

func TestAssignment(t *testing.T) {
	bound := func(mode storagev1.VolumeBindingMode, terms ...corev1.TopologySelectorTerm) *storagev1.StorageClass {
		return &storagev1.StorageClass{VolumeBindingMode: &mode, AllowedTopologies: terms}
	}
	now, late := storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	patient := testNode()
	patient.Immediate = false
	tests := map[string]struct {
		node  Node
		claim *corev1.PersistentVolumeClaim
		class *storagev1.StorageClass
		want  Assignment
	}{
		"one provisioner for all":        {Node{}, testClaim(selected("n2")), nil, AssignedHere},
		"scheduled here":                 {testNode(), testClaim(selected("n1")), bound(late), AssignedHere},
		"scheduled here, class unknown":  {testNode(), testClaim(selected("n1")), nil, AssignedHere},
		"scheduled elsewhere":            {testNode(), testClaim(selected("n2")), bound(now), AssignedElsewhere},
		"not scheduled yet":              {testNode(), testClaim(), bound(late), AssignedElsewhere},
		"immediate":                      {testNode(), testClaim(), bound(now), Unassigned},
		"immediate, as nothing is said":  {testNode(), testClaim(), &storagev1.StorageClass{}, Unassigned},
		"immediate, class unknown":       {testNode(), testClaim(), nil, AssignedElsewhere},
		"immediate, taken here":          {testNode(), testClaim(selected("n1")), bound(now), AssignedHere},
		"immediate is off":               {patient, testClaim(), bound(now), AssignedElsewhere},
		"immediate is off, but assigned": {patient, testClaim(selected("n1")), bound(now), AssignedHere},
		"allowed here":                   {testNode(), testClaim(), bound(now, allowed("host", "n2", "n1")), Unassigned},
		"not allowed here":               {testNode(), testClaim(), bound(now, allowed("host", "n2", "n3")), AssignedElsewhere},
		"allowed in another topology":    {testNode(), testClaim(), bound(now, allowed("zone", "a")), AssignedElsewhere},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.node.Assignment(test.claim, test.class); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func on(requirements ...corev1.NodeSelectorRequirement) *corev1.PersistentVolume {
	volume := savedVolume("", "nfs.example", "a")
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: requirements}},
	}}
	return volume
}

func host(names ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: "host", Operator: corev1.NodeSelectorOpIn, Values: names}
}

// madeBy is a volume without affinity.
func madeBy(identity string) *corev1.PersistentVolume {
	volume := savedVolume("", "nfs.example", "a")
	volume.Spec.CSI.VolumeAttributes = map[string]string{IdentityAttribute: identity}
	return volume
}

func TestHolds(t *testing.T) {
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	not := corev1.NodeSelectorRequirement{Key: "host", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"n2"}}
	notHere := corev1.NodeSelectorRequirement{Key: "host", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"n1"}}
	byName := on(host("n1"))
	byName.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchFields = []corev1.NodeSelectorRequirement{{Key: "metadata.name"}}
	either := on(host("n2"))
	either.Spec.NodeAffinity.Required.NodeSelectorTerms = append(either.Spec.NodeAffinity.Required.NodeSelectorTerms,
		on(host("n1")).Spec.NodeAffinity.Required.NodeSelectorTerms...)
	empty := savedVolume("", "nfs.example", "a")
	empty.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{}
	tests := map[string]struct {
		volume *corev1.PersistentVolume
		want   bool
	}{
		"here":                         {on(host("n1")), true},
		"here or there":                {either, true},
		"there":                        {on(host("n2")), false},
		"here in a zone nobody is in":  {on(host("n1"), zone), false},
		"anywhere but there":           {on(not), false},
		"anywhere but here":            {on(notHere), false},
		"by a field":                   {byName, false},
		"a term that says nothing":     {on(), false},
		"no affinity":                  {savedVolume("", "nfs.example", "a"), false},
		"made here, no affinity":       {madeBy("17-42-nfs.example-n1"), true},
		"made there, no affinity":      {madeBy("17-42-nfs.example-n2"), false},
		"made on a node named like it": {madeBy("17-42-nfs.example-a-n1"), false},
		"made by another driver":       {madeBy("17-42-nfs-n1"), false},
		"made for the whole cluster":   {madeBy("17-42-nfs.example"), false},
		"made by nobody":               {madeBy(""), false},
		"affinity that says nothing":   {empty, false},
		"here, with a name of another": {on(host("n10")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := testNode().Holds(test.volume); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if err := testNode().CheckTopology(test.volume); errors.Is(err, ErrResponse) == test.want {
				t.Errorf("CheckTopology() = %v", err)
			}
			if all := (Node{}); !all.Holds(test.volume) || all.CheckTopology(test.volume) != nil {
				t.Error("a provisioner for all nodes does not hold it")
			}
		})
	}
}

func TestAbandonedOnANode(t *testing.T) {
	template := savedVolume("", "nfs.example", "")
	tests := map[string]struct {
		volume *corev1.PersistentVolume
		claim  *corev1.PersistentVolumeClaim
		want   Remains
	}{
		"saved here":                     {on(host("n1")), nil, RemainsSaved},
		"saved, nobody says where":       {savedVolume("", "nfs.example", "a"), nil, RemainsSaved},
		"saved on another node":          {on(host("n2")), testClaim(), RemainsElsewhere},
		"made here, nobody says where":   {madeBy("17-42-nfs.example-n1"), nil, RemainsSaved},
		"made on another node":           {madeBy("17-42-nfs.example-n2"), testClaim(), RemainsElsewhere},
		"wanted here":                    {nil, testClaim(selected("n1")), RemainsWanted},
		"wanted, to be scheduled again":  {nil, testClaim(), RemainsWanted},
		"wanted on another node":         {nil, testClaim(selected("n2")), RemainsElsewhere},
		"claim is gone":                  {nil, nil, RemainsOrphaned},
		"bound to a volume of its own":   {nil, testClaim(selected("n2"), func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "static" }), RemainsOrphaned},
		"another claim's on another one": {ofOther(on(host("n2"))), nil, RemainsOrphaned},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := testNode().Abandoned(test.volume, test.claim, template); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if got := (Node{}).Abandoned(test.volume, test.claim, template); got == RemainsElsewhere {
				t.Error("to a provisioner for all nodes nothing is elsewhere")
			}
		})
	}
}

func ofOther(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	volume.Spec.ClaimRef.UID = "other"
	return volume
}

func TestFits(t *testing.T) {
	claim := testClaim()
	size := requestedBytes(claim)
	tests := map[string]struct {
		room *csi.GetCapacityResponse
		want bool
	}{
		"just":             {&csi.GetCapacityResponse{AvailableCapacity: size}, true},
		"not":              {&csi.GetCapacityResponse{AvailableCapacity: size - 1}, false},
		"in pieces":        {&csi.GetCapacityResponse{AvailableCapacity: 9 * size, MaximumVolumeSize: wrapperspb.Int64(size - 1)}, false},
		"as one, overbook": {&csi.GetCapacityResponse{AvailableCapacity: 1, MaximumVolumeSize: wrapperspb.Int64(size)}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Fits(claim, test.room); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestPlacementOfANode(t *testing.T) {
	requirement, err := testNode().Placement("data", []corev1.TopologySelectorTerm{allowed("host", "n2", "n1")}).Requirement()
	if err != nil || len(requirement.GetRequisite()) != 1 || requirement.GetRequisite()[0].GetSegments()["host"] != "n1" {
		t.Errorf("asks for %v, %v; want n1 and nothing else", requirement, err)
	}
	if _, err := testNode().Placement("data", []corev1.TopologySelectorTerm{allowed("host", "n2")}).Requirement(); !errors.Is(err, ErrClass) {
		t.Errorf("a node that the class does not allow: %v", err)
	}
}

func TestProvisionerOf(t *testing.T) {
	claim := testClaim()
	if got := ProvisionerOf(claim); got != "" {
		t.Errorf("of a new claim: %q", got)
	}
	claim.Annotations = map[string]string{oldProvisionerAnnotation: "old"}
	if got := ProvisionerOf(claim); got != "old" {
		t.Errorf("of an old claim: %q", got)
	}
	claim.Annotations[provisionerAnnotation] = "new"
	if got := ProvisionerOf(claim); got != "new" {
		t.Errorf("got %q", got)
	}
}
