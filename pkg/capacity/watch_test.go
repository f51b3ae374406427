package capacity

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nodes are updated all the time; only what can change their segments is looked at.
func TestChangesThatMatter(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}}
		change(n)
		return n
	}
	for name, test := range map[string]struct {
		after *corev1.Node
		want  bool
	}{
		"heartbeat": {node(func(n *corev1.Node) { n.ResourceVersion, n.Annotations = "2", map[string]string{"seen": "now"} }), false},
		"label":     {node(func(n *corev1.Node) { n.Labels["zone"] = "b" }), true},
		"no label":  {node(func(n *corev1.Node) { n.Labels = nil }), true},
	} {
		if got := labelsChanged(node(func(*corev1.Node) {}), test.after); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
	p := &Publisher{config: Config{DriverName: driverName}}
	csiNode := func(drivers ...storagev1.CSINodeDriver) *storagev1.CSINode {
		return &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: drivers}}
	}
	own := storagev1.CSINodeDriver{Name: driverName, TopologyKeys: []string{"zone"}}
	for name, test := range map[string]struct {
		after *storagev1.CSINode
		want  bool
	}{
		"another driver": {csiNode(storagev1.CSINodeDriver{Name: "other", TopologyKeys: []string{"rack"}}, own), false},
		"gone":           {csiNode(), true},
		"other keys":     {csiNode(storagev1.CSINodeDriver{Name: driverName, TopologyKeys: []string{"zone", "rack"}}), true},
	} {
		if got := p.topologyKeysChanged(csiNode(own), test.after); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// The next poll is far away: what others do to the objects is noticed.
func TestObjectsAreWatched(t *testing.T) {
	w := newWorldOf(t, &driver{room: 100}, func(c *Config) { c.PollInterval = time.Hour }, late())
	first := w.await("late/=100")[0]
	if err := w.objects().Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is published again", func() bool {
		_, err := w.objects().Get(t.Context(), first.Name, metav1.GetOptions{})
		return err == nil
	})
	for _, object := range []*storagev1.CSIStorageCapacity{
		object("spare", "late", in(nil)), object("of-no-class", "gone", in(nil)), object("without-selector", "late", nil),
	} {
		if _, err := w.objects().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.await("late/=100")
}
