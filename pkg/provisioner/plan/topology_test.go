package plan

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func zone(name string) Segment       { return Segment{"zone": name} }
func rack(zone, rack string) Segment { return Segment{"zone": zone, "rack": rack} }
func allowed(key string, values ...string) corev1.TopologySelectorTerm {
	return corev1.TopologySelectorTerm{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: values}}}
}

func shown(all []*csi.Topology) string {
	var texts []string
	for _, topology := range all {
		texts = append(texts, Segment(topology.GetSegments()).String())
	}
	return strings.Join(texts, " ")
}

func TestSpread(t *testing.T) {
	// Recorded from external-provisioner v6.3.0, but for the last two.
	tests := []struct {
		claim          string
		segments, want int
	}{
		{"claim", 3, 2},
		{"plain", 3, 1},
		{"data-web-0", 3, 0},
		{"data-web-1", 3, 1},
		{"logs-web-1", 3, 1},
		{"data-web-0", 5, 0},
		{"data-web-3", 5, 3},
		{"web-1", 3, 1},
		{"data-web-01", 3, 1},
	}
	for _, test := range tests {
		if got := spread(test.claim, test.segments); got != test.want {
			t.Errorf("%s gets segment %d of %d, want %d", test.claim, got, test.segments, test.want)
		}
	}
}

func TestRequirement(t *testing.T) {
	cluster := []Segment{zone("b"), zone("a"), zone("c"), zone("a")}
	tests := map[string]struct {
		placement            Placement
		requisite, preferred string
		fails                error
	}{
		"immediate": {
			Placement{Immediate: true, Cluster: cluster, ClaimName: "db-0"},
			"zone=a zone=b zone=c", "zone=b zone=c zone=a", nil,
		},
		"the next of a StatefulSet": {
			Placement{Immediate: true, Cluster: cluster, ClaimName: "db-1"},
			"zone=a zone=b zone=c", "zone=c zone=a zone=b", nil,
		},
		"immediate, not asked for": {Placement{Cluster: cluster}, "", "", nil},
		"immediate, no node known": {Placement{Immediate: true}, "", "", ErrClaim},
		"immediate, allowed": {
			Placement{Cluster: cluster, ClaimName: "db-0", Allowed: []corev1.TopologySelectorTerm{allowed("zone", "d", "a")}},
			"zone=a zone=d", "zone=d zone=a", nil,
		},
		"all combinations allowed": {
			Placement{ClaimName: "db-0", Allowed: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
				{Key: "zone", Values: []string{"a", "b"}}, {Key: "rack", Values: []string{"1", "2"}},
			}}, allowed("zone")}},
			"rack=1,zone=a rack=1,zone=b rack=2,zone=a rack=2,zone=b", "", nil,
		},
		"selected": {
			Placement{Selected: zone("b"), Cluster: cluster},
			"zone=a zone=b zone=c", "zone=b zone=c zone=a", nil,
		},
		"selected, strict": {
			Placement{Selected: zone("b"), Strict: true, Cluster: cluster},
			"zone=b", "zone=b", nil,
		},
		"selected, its node not listed yet": {Placement{Selected: zone("b")}, "zone=b", "zone=b", nil},
		"selected, nodes with other keys": {
			Placement{Selected: zone("b"), Cluster: []Segment{zone("b"), rack("a", "1")}},
			"zone=b", "zone=b", nil,
		},
		"selected and allowed": {
			Placement{Selected: zone("b"), Cluster: cluster, Allowed: []corev1.TopologySelectorTerm{allowed("zone", "a", "b")}},
			"zone=a zone=b", "zone=b zone=a", nil,
		},
		"selected within what is allowed": {
			Placement{Selected: rack("b", "1"), Allowed: []corev1.TopologySelectorTerm{allowed("zone", "a", "b")}},
			"zone=a zone=b", "zone=b zone=a", nil,
		},
		"strict within what is allowed": {
			Placement{Strict: true, Selected: rack("b", "1"), Allowed: []corev1.TopologySelectorTerm{allowed("zone", "a", "b")}},
			"rack=1,zone=b", "rack=1,zone=b", nil,
		},
		"selected, not allowed": {
			Placement{Selected: zone("c"), Cluster: cluster, Allowed: []corev1.TopologySelectorTerm{allowed("zone", "a", "b")}}, "", "", ErrClass,
		},
		"strict, not allowed": {
			Placement{Strict: true, Selected: zone("c"), Allowed: []corev1.TopologySelectorTerm{allowed("zone", "a", "b")}}, "", "", ErrClass,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.placement.Requirement()
			if !errors.Is(err, test.fails) {
				t.Fatalf("Requirement() = %v, want %v", err, test.fails)
			}
			if requisite := shown(got.GetRequisite()); requisite != test.requisite {
				t.Errorf("requisite %q, want %q", requisite, test.requisite)
			}
			if preferred := shown(got.GetPreferred()); test.preferred != "" && preferred != test.preferred {
				t.Errorf("preferred %q, want %q", preferred, test.preferred)
			}
			if len(got.GetPreferred()) != len(got.GetRequisite()) {
				t.Errorf("preferred %q is not all of %q", shown(got.GetPreferred()), shown(got.GetRequisite()))
			}
		})
	}
}

func TestNodeSegment(t *testing.T) {
	registered := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "flat.example"}, {Name: "zoned.example", TopologyKeys: []string{"zone", "rack"}},
		}},
	}
	labels := map[string]string{"zone": "a", "rack": "1", "other": "x"}
	tests := map[string]struct {
		driver     string
		registered *storagev1.CSINode
		labels     map[string]string
		want       Segment
		fails      error
	}{
		"known":              {"zoned.example", registered, labels, rack("a", "1"), nil},
		"without topology":   {"flat.example", registered, labels, nil, nil},
		"another driver":     {"other.example", registered, labels, nil, nil},
		"nothing registered": {"zoned.example", nil, labels, nil, nil},
		"label missing":      {"zoned.example", registered, zone("a"), nil, ErrClaim},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NodeSegment(test.driver, test.registered, test.labels)
			if !errors.Is(err, test.fails) || !reflect.DeepEqual(got, test.want) {
				t.Errorf("NodeSegment() = %v, %v, want %v, %v", got, err, test.want, test.fails)
			}
		})
	}
}

func TestNodeAffinity(t *testing.T) {
	term := func(pairs ...string) corev1.NodeSelectorTerm {
		var term corev1.NodeSelectorTerm
		for i := 0; i < len(pairs); i += 2 {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: pairs[i], Operator: corev1.NodeSelectorOpIn, Values: []string{pairs[i+1]},
			})
		}
		return term
	}
	tests := map[string]struct {
		accessible []*csi.Topology
		want       []corev1.NodeSelectorTerm
	}{
		"everywhere": {nil, nil},
		// No node matches an empty term, so there must be none.
		"nothing said": {[]*csi.Topology{{}}, nil},
		"two places": {
			[]*csi.Topology{{Segments: rack("a", "1")}, {Segments: zone("b")}},
			[]corev1.NodeSelectorTerm{term("rack", "1", "zone", "a"), term("zone", "b")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []corev1.NodeSelectorTerm
			if affinity := NodeAffinity(test.accessible); affinity != nil {
				got = affinity.Required.NodeSelectorTerms
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestPlacedCreation(t *testing.T) {
	full := status.Error(codes.ResourceExhausted, "full")
	tests := map[string]struct {
		placement *Placement
		selected  bool
		err       error
		want      controller.ProvisioningState
	}{
		"no topology":      {nil, false, full, controller.ProvisioningFinished},
		"no node selected": {&Placement{Immediate: true, Cluster: []Segment{zone("a")}}, false, full, controller.ProvisioningFinished},
		"another node may": {&Placement{Selected: zone("a")}, true, full, controller.ProvisioningReschedule},
		"still at it":      {&Placement{Selected: zone("a")}, true, status.Error(codes.Aborted, "wait"), controller.ProvisioningInBackground},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			creation, err := NewCreation(testOptions(), testClaim(), testClass(nil), "pvc-1")
			if err != nil {
				t.Fatal(err)
			}
			if test.placement != nil {
				if err := creation.Place(*test.placement, test.selected); err != nil {
					t.Fatal(err)
				}
			}
			if got := creation.FailedState(test.err); got != test.want {
				t.Errorf("state is %s, want %s", got, test.want)
			}
			volume, err := creation.Volume(&csi.CreateVolumeResponse{Volume: &csi.Volume{
				VolumeId: "v", AccessibleTopology: []*csi.Topology{{Segments: zone("a")}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			if got := volume.Spec.NodeAffinity != nil; got != (test.placement != nil) {
				t.Errorf("node affinity: %t", got)
			}
		})
	}
}
