package provisioner

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/volumes"
)

// newNodes is a provisioner with its driver on each of two nodes, a and b, which
// share the API server. They do not run yet.
func newNodes(t *testing.T, objects ...runtime.Object) (a, b *world) {
	t.Helper()
	client, dynamic := fake.NewClientset(objects...), newDynamic()
	versionClaims(client)
	client.PrependReactor("update", "persistentvolumeclaims", refuseSecond(client))
	refusePatches(client, dynamic)
	client.PrependWatchReactor("*", copyEvents(client))
	nodes := map[string]*world{}
	for _, name := range []string{"a", "b"} {
		w := &world{T: t, driver: nodeDriver(name), client: client, dynamic: dynamic}
		w.configure(func(config *Config) {
			config.Topology = volumes.Topology{Enabled: true}
			config.Node = plan.Node{Name: "node-" + name, Segment: plan.Segment{"zone": name}, Immediate: true}
			config.RaceMinDelay, config.RaceMaxDelay = time.Millisecond, 10*time.Millisecond
			config.Journal.Name += "." + name
			config.Options.Identity = "17-42-" + driverName + "-node-" + name
		})
		nodes[name] = w
	}
	return nodes["a"], nodes["b"]
}

// runNodes constructs all before it runs one: New changes the scheme of all clients.
func runNodes(t *testing.T, nodes ...*world) {
	t.Helper()
	var made []*Provisioner
	for _, w := range nodes {
		made = append(made, w.newProvisioner())
	}
	for i, w := range nodes {
		w.runThis(made[i])
		t.Cleanup(func() { w.kill() })
	}
}

// copyEvents gives every watch its own objects, as the API server does: a provisioner
// trims those that it receives.
func copyEvents(client *fake.Clientset) clienttesting.WatchReactionFunc {
	return func(action clienttesting.Action) (bool, watch.Interface, error) {
		var options metav1.ListOptions
		if asked, ok := action.(clienttesting.WatchActionImpl); ok {
			options = asked.ListOptions
		}
		events, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace(), options)
		if err != nil {
			return true, nil, err
		}
		return true, watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
			event.Object = event.Object.DeepCopyObject()
			return event, true
		}), nil
	}
}

// refuseSecond refuses to assign a claim that another node has, as the API server does
// for an outdated update.
func refuseSecond(client *fake.Clientset) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		updated := updatedClaim(action)
		if updated == nil {
			return false, nil, nil
		}
		object, err := client.Tracker().Get(action.GetResource(), updated.Namespace, updated.Name)
		if err != nil {
			return true, nil, err
		}
		claim, ok := object.(*corev1.PersistentVolumeClaim)
		if !ok || claim.Annotations[selectedNode] == "" || claim.Annotations[selectedNode] == updated.Annotations[selectedNode] {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), updated.Name, errors.New("it has changed"))
	}
}

// nodeDriver creates volumes on its node, with IDs that other nodes use too.
func nodeDriver(node string) *drivertest.Driver {
	driver := drivertest.New(driverName)
	driver.SetServices(csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	driver.OnCreate(madeOn(node))
	return driver
}

func madeOn(node string) drivertest.CreateHook {
	return func(_ context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		response, err := next()
		response.GetVolume().AccessibleTopology = []*csi.Topology{{Segments: map[string]string{"zone": node}}}
		return response, err
	}
}

func lateClass() *storagev1.StorageClass {
	class := testClass(nil)
	class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	return class
}

// release does the PV controller's part.
func (w *world) release(name string) {
	w.Helper()
	volume := w.awaitVolume(name)
	volume.Status.Phase = corev1.VolumeReleased
	if _, err := w.client.CoreV1().PersistentVolumes().UpdateStatus(w.Context(), volume, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// journaled is the number of unfinished volumes in the journal.
func (w *world) journaled() int {
	w.Helper()
	notes, err := w.entries(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return len(notes.Entries())
}

func TestEachNodeMakesAndDeletesItsVolumes(t *testing.T) {
	a, b := newNodes(t, lateClass())
	runNodes(t, a, b)
	a.createClaim(testClaim("waits"))
	a.createClaim(testClaim("first", onNode("node-a")))
	a.createClaim(testClaim("second", onNode("node-b")))
	a.awaitVolume("pvc-uid-first")
	volume := a.awaitVolume("pvc-uid-second")
	if got := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]; got != "b" {
		t.Errorf("the volume is on %s", got)
	}
	for _, w := range []*world{a, b} {
		creates := w.driver.Creates()
		if len(creates) != 1 || len(creates[0].GetAccessibilityRequirements().GetRequisite()) != 1 {
			t.Errorf("node %s was asked for %v", w.config.Node.Name, creates)
		}
	}
	a.deleteClaim("second")
	a.release("pvc-uid-second")
	a.awaitGone("pvc-uid-second")
	if calls := a.driver.Deletes(); len(calls) != 0 {
		t.Errorf("node a was told to delete %v", calls)
	}
	if left := b.driver.Volumes(); len(left) != 0 {
		t.Errorf("node b has %v", left)
	}
}

// Node a dies with an unfinished volume, and its claim moves to node b.
func TestVolumeLeftOnAnotherNodeIsDeleted(t *testing.T) {
	a, b := newNodes(t, lateClass())
	runNodes(t, a)
	a.dieAfterCreate(testClaim("data", onNode("node-a")))
	a.driver.OnCreate(madeOn("a"))
	a.schedule("data", "node-b")
	runNodes(t, b)
	volume := a.awaitVolume("pvc-uid-data")
	b.kill()
	runNodes(t, a)
	eventually(t, "the volume on node a is gone", func() bool { return len(a.driver.Volumes()) == 0 })
	if got := a.volume("pvc-uid-data"); got == nil || got.UID != volume.UID || len(b.driver.Volumes()) != 1 {
		t.Errorf("the claim's own volume has gone too: %v, %v", got, b.driver.Volumes())
	}
	eventually(t, "nothing is in the making", func() bool { return a.journaled() == 0 })
}

// While node a creates the volume, the claim moves to node b, which is faster. Both use
// the same ID.
func TestVolumeMadeOnTwoNodes(t *testing.T) {
	a, _ := newNodes(t, lateClass())
	elsewhere := releasedVolume("pvc-uid-data", func(volume *corev1.PersistentVolume) {
		volume.Spec.CSI.VolumeHandle, volume.Spec.ClaimRef.UID = "id-of-pvc-uid-data", "uid-data"
		volume.Spec.NodeAffinity = plan.NodeAffinity([]*csi.Topology{{Segments: map[string]string{"zone": "b"}}})
		volume.Status.Phase = corev1.VolumeBound
	})
	a.driver.OnCreate(func(ctx context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if _, err := a.client.CoreV1().PersistentVolumes().Create(ctx, elsewhere, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		return madeOn("a")(ctx, request, next)
	})
	runNodes(t, a)
	a.createClaim(testClaim("data", onNode("node-a")))
	a.awaitEvent("ProvisioningFailed", "the claim gets its volume on another node: PersistentVolume pvc-uid-data exists already; it was deleted")
	if left := a.driver.Volumes(); len(left) != 0 || a.volume("pvc-uid-data") == nil {
		t.Errorf("node a has %v, and PersistentVolume %v", left, a.volume("pvc-uid-data"))
	}
	eventually(t, "nothing is in the making", func() bool { return a.journaled() == 0 })
}

// A driver with one volume of a name for all nodes has created none on node a.
func TestVolumeOfAnotherNodeIsNotDeleted(t *testing.T) {
	a, b := newNodes(t, lateClass())
	runNodes(t, a)
	a.dieAfterCreate(testClaim("data", onNode("node-a")))
	a.driver.OnCreate(madeOn("b"))
	a.schedule("data", "node-b")
	runNodes(t, b)
	a.awaitVolume("pvc-uid-data")
	b.kill()
	runNodes(t, a)
	a.awaitEvent("ProvisioningCleanupFailed", "nothing was deleted, and the claim gets its volume on another node")
	if calls := a.driver.Deletes(); len(calls) != 0 {
		t.Errorf("node a was told to delete %v", calls)
	}
}

func TestVolumeMadeElsewhereIsRefused(t *testing.T) {
	a, _ := newNodes(t, lateClass())
	a.driver.OnCreate(madeOn("b"))
	runNodes(t, a)
	a.createClaim(testClaim("data", onNode("node-a")))
	a.awaitEvent("ProvisioningFailed", "its accessible topology does not include zone=a; it was not deleted")
	if a.volume("pvc-uid-data") != nil {
		t.Error("it was saved")
	}
}

// Such a volume is on the node that has made it, and only that node deletes it. The two
// nodes use the same handle.
func TestVolumeWithoutAccessibleTopology(t *testing.T) {
	a, b := newNodes(t, lateClass())
	for _, w := range []*world{a, b} {
		w.driver.OnCreate(nil)
	}
	runNodes(t, a, b)
	a.createClaim(testClaim("data", onNode("node-a")))
	volume := a.awaitVolume("pvc-uid-data")
	if volume.Spec.NodeAffinity != nil {
		t.Errorf("the volume has the affinity %v", volume.Spec.NodeAffinity)
	}
	eventually(t, "nothing is in the making", func() bool { return a.journaled() == 0 })
	a.deleteClaim("data")
	a.release("pvc-uid-data")
	a.awaitGone("pvc-uid-data")
	a.wantCalls(1, 1)
	b.wantCalls(0, 0)
}

func TestConfigOfANodeRefused(t *testing.T) {
	a, _ := newNodes(t)
	for name, change := range map[string]func(*Config){
		"no name":    func(c *Config) { c.Node = plan.Node{Segment: plan.Segment{"zone": "a"}} },
		"no segment": func(c *Config) { c.Node = plan.Node{Name: "a"} },
		"no gate":    func(c *Config) { c.Topology = volumes.Topology{} },
		"no delay":   func(c *Config) { c.RaceMinDelay = 0 },
		"shrinking":  func(c *Config) { c.RaceMaxDelay = c.RaceMinDelay / 2 },
	} {
		config := a.config
		change(&config)
		if _, err := New(config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
