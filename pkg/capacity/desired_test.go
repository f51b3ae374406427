package capacity

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

const driverName = "nfs.example"

func class(name, provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
}

func object(name, class string, selector *metav1.LabelSelector) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name,
			Labels: map[string]string{driverLabel: driverName, managedByLabel: managedBy},
		},
		StorageClassName: class, NodeTopology: selector,
	}
}

func in(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels}
}

func TestDesired(t *testing.T) {
	classes := []*storagev1.StorageClass{
		class("late", driverName, storagev1.VolumeBindingWaitForFirstConsumer),
		class("now", driverName, storagev1.VolumeBindingImmediate),
		class("foreign", "other.example", storagev1.VolumeBindingWaitForFirstConsumer),
		{ObjectMeta: metav1.ObjectMeta{Name: "unsaid"}, Provisioner: driverName},
	}
	zones := []plan.Segment{{"zone": "a"}, {"zone": "b"}, {"zone": "a"}}
	tests := map[string]struct {
		immediate bool
		segments  []plan.Segment
		want      []string
	}{
		"whole cluster":     {false, []plan.Segment{{}}, []string{"late/"}},
		"immediate too":     {true, []plan.Segment{{}}, []string{"late/", "now/", "unsaid/"}},
		"each segment once": {false, zones, []string{"late/zone=a", "late/zone=b"}},
		"no node":           {false, nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := slices.Sorted(maps.Keys(desired(driverName, test.immediate, classes, test.segments).byKey))
			if !slices.Equal(got, test.want) {
				t.Errorf("desired is %q, want %q", got, test.want)
			}
		})
	}
}

func TestNear(t *testing.T) {
	late, other := class("late", driverName, storagev1.VolumeBindingWaitForFirstConsumer), class("other", driverName, storagev1.VolumeBindingWaitForFirstConsumer)
	targets := desired(driverName, false, []*storagev1.StorageClass{late, other}, []plan.Segment{
		{"region": "r", "zone": "a"}, {"region": "r", "zone": "b"}, {"region": "s", "zone": "a"},
	})
	at := func(segments ...map[string]string) *corev1.VolumeNodeAffinity {
		var accessible []*csi.Topology
		for _, segment := range segments {
			accessible = append(accessible, &csi.Topology{Segments: segment})
		}
		return plan.NodeAffinity(accessible)
	}
	for name, test := range map[string]struct {
		affinity *corev1.VolumeNodeAffinity
		want     []string
	}{
		"none":                 {nil, []string{"late/region=r,zone=a", "late/region=r,zone=b", "late/region=s,zone=a"}},
		"without requirements": {&corev1.VolumeNodeAffinity{}, nil},
		"one segment":          {at(map[string]string{"region": "r", "zone": "a"}), []string{"late/region=r,zone=a", "other/region=r,zone=a"}},
		"part of a segment":    {at(map[string]string{"zone": "b"}), []string{"late/region=r,zone=b", "other/region=r,zone=b"}},
		"several": {at(map[string]string{"region": "r", "zone": "b"}, map[string]string{"region": "s"}), []string{
			"late/region=r,zone=b", "late/region=s,zone=a", "other/region=r,zone=b", "other/region=s,zone=a",
		}},
		"elsewhere": {at(map[string]string{"region": "t"}), nil},
	} {
		if got := slices.Sorted(slices.Values(targets.near("late", test.affinity))); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestNewState(t *testing.T) {
	targets := desired(driverName, false, []*storagev1.StorageClass{class("late", driverName, storagev1.VolumeBindingWaitForFirstConsumer)},
		[]plan.Segment{{"zone": "a"}})
	got := newState(targets.byKey, []*storagev1.CSIStorageCapacity{
		object("second", "late", in(map[string]string{"zone": "a"})),
		object("first", "late", in(map[string]string{"zone": "a"})),
		object("elsewhere", "late", in(map[string]string{"zone": "b"})),
		object("other-class", "now", in(map[string]string{"zone": "a"})),
		object("nowhere", "late", nil),
		object("expressive", "late", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"a"}}}}),
	})
	if first := got.current["late/zone=a"]; len(got.current) != 1 || first == nil || first.Name != "first" {
		t.Errorf("current is %v", got.current)
	}
	var names []string
	for _, o := range got.obsolete {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	if want := []string{"elsewhere", "expressive", "nowhere", "other-class", "second"}; !slices.Equal(names, want) {
		t.Errorf("obsolete are %q, want %q", names, want)
	}
}

func TestManagerOf(t *testing.T) {
	long := strings.Repeat("n", 60) + ".example.com"
	for node, want := range map[string]string{
		"node-1":                         "external-provisioner-node-1",
		"node" + strings.Repeat("a", 38): "external-provisioner-node" + strings.Repeat("a", 38),
		"node" + strings.Repeat("a", 39): "external-p-53f40b57-node" + strings.Repeat("a", 39),
		"node" + strings.Repeat("a", 48): "e-53f40b57-node" + strings.Repeat("a", 48),
		"node" + strings.Repeat("a", 49): "external-provisioner-a3607ff1",
		"node" + strings.Repeat("a", 63): "external-provisioner-df38e37f",
	} {
		if got := managerOf(node); got != want {
			t.Errorf("of %s: got %q, want %q", node, got, want)
		}
	}
	if managerOf(long) == managerOf(long+"x") {
		t.Error("two nodes have the same")
	}
	if problems := validation.IsValidLabelValue(managerOf(long)); problems != nil {
		t.Errorf("%q: %v", managerOf(long), problems)
	}
}
