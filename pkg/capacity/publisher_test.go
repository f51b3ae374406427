package capacity

import (
	"errors"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

func TestPublishedForTheWholeCluster(t *testing.T) {
	w := newWorld(t, false, late(func(c *storagev1.StorageClass) {
		c.Parameters = map[string]string{"server": "a", "csi.storage.k8s.io/fstype": "nfs"}
	}))
	published := w.await("late/=100")[0]
	if published.NodeTopology == nil || len(published.NodeTopology.MatchLabels) > 0 {
		t.Errorf("topology is %v, want one that all nodes are in", published.NodeTopology)
	}
	if owners := published.OwnerReferences; len(owners) != 1 || owners[0].Name != "controller" {
		t.Errorf("owners are %v", owners)
	}
	w.driver.mu.Lock()
	request := w.driver.requests[0]
	w.driver.mu.Unlock()
	if request.GetAccessibleTopology() != nil || len(request.GetParameters()) != 1 || request.GetParameters()["server"] != "a" {
		t.Errorf("the driver is asked %v", request)
	}
	w.driver.set(50, nil)
	w.await("late/=50")
	if err := w.client.StorageV1().StorageClasses().Delete(t.Context(), "late", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await()
}

// TestPublishedWithoutTheClaimsTokens: what a claim decides is not a place to measure, and
// drivers refuse tokens that they do not know.
func TestPublishedWithoutTheClaimsTokens(t *testing.T) {
	w := newWorld(t, false, late(func(c *storagev1.StorageClass) {
		c.Parameters = map[string]string{
			"server": "a", "subDir": "${pvc.labels['app']}", "csi.storage.k8s.io/expand-parameters": "true",
		}
	}))
	w.await("late/=100")
	w.driver.mu.Lock()
	parameters := w.driver.requests[0].GetParameters()
	w.driver.mu.Unlock()
	if len(parameters) != 1 || parameters["server"] != "a" {
		t.Errorf("the driver is asked with %v", parameters)
	}
}

func TestPublishedForEachSegment(t *testing.T) {
	// One object is of an earlier run, one of a segment that no longer exists, and one
	// is another driver's.
	foreign := object("foreign", "late", in(nil))
	foreign.Labels[driverLabel] = "other.example"
	foreign.Capacity = resource.NewQuantity(1, resource.BinarySI)
	driver := &driver{rooms: map[string]int64{"a": 7, "b": 9}, largest: 5, fails: errors.New("away")}
	w := newWorldOf(t, driver, func(c *Config) { c.Topology = true }, append(append(zoned("n-a", "a"), zoned("n-b", "b")...), late(),
		object("kept", "late", in(map[string]string{"zone": "a"})), object("old", "late", in(map[string]string{"zone": "z"})), foreign)...)
	w.driver.set(0, nil)
	for _, published := range w.await("late/zone=a=7", "late/zone=b=9") {
		if largest := published.MaximumVolumeSize; largest == nil || largest.Value() != 5 {
			t.Errorf("the largest volume of %s is %v", published.Name, largest)
		}
	}
	w.awaitMetrics(map[string]float64{
		"csistoragecapacities_desired_goal":    2,
		"csistoragecapacities_desired_current": 2,
		"csistoragecapacities_obsolete":        0,
	})
	objects := w.objects()
	for name, want := range map[string]int64{"kept": 7, "foreign": 1} {
		if got, err := objects.Get(t.Context(), name, metav1.GetOptions{}); err != nil || got.Capacity.Value() != want {
			t.Errorf("%s has %v, %v, want %d", name, got, err, want)
		}
	}
	if _, err := objects.Get(t.Context(), "old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a segment that is no more is still published: %v", err)
	}
}

// The next poll is far away: the calls follow the change of a volume.
func TestRefresh(t *testing.T) {
	driver := &driver{rooms: map[string]int64{"a": 7, "b": 9}}
	slow := func(c *Config) { c.Topology, c.PollInterval = true, time.Hour }
	other := class("other", driverName, storagev1.VolumeBindingWaitForFirstConsumer)
	w := newWorldOf(t, driver, slow, append(append(zoned("n-a", "a"), zoned("n-b", "b")...), late(), other)...)
	w.await("late/zone=a=7", "late/zone=b=9", "other/zone=a=7", "other/zone=b=9")
	driver.setRooms(map[string]int64{"a": 6, "b": 8})
	w.publisher.Refresh("late", plan.NodeAffinity([]*csi.Topology{{Segments: map[string]string{"zone": "a"}}}))
	w.await("late/zone=a=6", "late/zone=b=9", "other/zone=a=6", "other/zone=b=9")
	w.publisher.Refresh("late", nil)
	w.await("late/zone=a=6", "late/zone=b=8", "other/zone=a=6", "other/zone=b=9")
}

// The next poll is far away: the calls are retries after a backoff.
func TestDriverThatFailsIsAskedAgain(t *testing.T) {
	w := newWorldOf(t, &driver{fails: errors.New("away")}, func(c *Config) { c.PollInterval = time.Hour })
	if err := w.client.Tracker().Add(late()); err != nil {
		t.Fatal(err)
	}
	w.awaitAsked(3)
	w.await()
	w.driver.set(9, nil)
	w.await("late/=9")
}

// The objects of other nodes are left alone.
func TestPublishedForOneNode(t *testing.T) {
	segment := map[string]string{"zone": "a"}
	managed := func(name, manager string) *storagev1.CSIStorageCapacity {
		published := object(name, "late", in(segment))
		published.Labels[managedByLabel] = manager
		return published
	}
	w := newWorldOf(t, &driver{rooms: map[string]int64{"a": 7}}, func(c *Config) {
		c.Topology, c.Node = true, plan.Node{Name: "n-a", Segment: segment}
	}, append(zoned("n-b", "b"), late(), managed("of-all", managedBy), managed("of-n-b", managerOf("n-b")), managed("spare", managerOf("n-a")), managed("own", managerOf("n-a")))...)
	w.awaitMetrics(map[string]float64{
		"csistoragecapacities_desired_goal":    1,
		"csistoragecapacities_desired_current": 1,
		"csistoragecapacities_obsolete":        0,
	})
	w.eventually("the object has the node's room", func() bool { return w.room("own") == 7 })
	for _, name := range []string{"of-all", "of-n-b"} {
		if room := w.room(name); room != -1 {
			t.Errorf("%s was touched: it has room for %d", name, room)
		}
	}
	if _, err := w.objects().Get(t.Context(), "spare", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the second object of the node: %v", err)
	}
}

// Unchanged objects are not written again, those of another owner are.
func TestOnlyChangesAreWritten(t *testing.T) {
	left := object("left", "late", in(nil))
	left.Capacity = resource.NewQuantity(100, resource.BinarySI)
	left.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "predecessor", UID: "other"}}
	w := newWorld(t, false, late(), left)
	w.eventually("the owner is this one", func() bool {
		got, err := w.objects().Get(t.Context(), "left", metav1.GetOptions{})
		return err == nil && len(got.OwnerReferences) == 1 && got.OwnerReferences[0].UID == "uid"
	})
	w.awaitAsked(5)
	updates := 0
	for _, action := range w.client.Actions() {
		if action.GetVerb() == "update" {
			updates++
		}
	}
	// A second one is possible before the cache has the first.
	if updates > 2 {
		t.Errorf("%d updates for one change", updates)
	}
}

// Another object of the same name may have replaced the obsolete one.
func TestOnlyWhatWasLookedAtIsRetracted(t *testing.T) {
	old := object("old", "late", in(map[string]string{"zone": "z"}))
	old.UID = "of-old"
	w := newWorld(t, false, late(), old)
	w.await("late/=100")
	deleted := 0
	for _, action := range w.client.Actions() {
		deletion, ok := action.(clienttesting.DeleteActionImpl)
		if !ok {
			continue
		}
		deleted++
		if p := deletion.DeleteOptions.Preconditions; p == nil || p.UID == nil || *p.UID != "of-old" {
			t.Errorf("deleted whatever has the name: %v", deletion.DeleteOptions)
		}
	}
	if deleted == 0 {
		t.Error("nothing was deleted")
	}
}
