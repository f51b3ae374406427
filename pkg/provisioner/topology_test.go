package provisioner

import (
	"context"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/volumes"
)

const selectedNode = "volume.kubernetes.io/selected-node"

// newZonedWorld has a node in each of the zones a and b, and a class that waits
// for the first consumer.
func newZonedWorld(t *testing.T, topology volumes.Topology, objects ...runtime.Object) *world {
	t.Helper()
	class := testClass(nil)
	class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	return newWorldOf(t, zonedDriver(), func(config *Config) { config.Topology = topology },
		append(objects, class, node("node-a", "a"), node("node-b", "b"), csiNode("node-a", "zone"), csiNode("node-b", "zone"))...)
}

// zonedDriver creates each volume in the most preferred zone.
func zonedDriver() *drivertest.Driver {
	driver := drivertest.New(driverName)
	driver.SetServices(csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	driver.OnCreate(inPreferred)
	return driver
}

func inPreferred(_ context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
	response, err := next()
	if preferred := request.GetAccessibilityRequirements().GetPreferred(); err == nil && len(preferred) > 0 {
		response.Volume.AccessibleTopology = preferred[:1]
	}
	return response, err
}

func node(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
}

func csiNode(name string, keys ...string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: name, TopologyKeys: keys}}},
	}
}

func onNode(name string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Annotations[selectedNode] = name }
}

func zones(all []*csi.Topology) []string {
	var names []string
	for _, topology := range all {
		names = append(names, topology.GetSegments()["zone"])
	}
	return names
}

func TestVolumeIsWhereTheNodeIs(t *testing.T) {
	tests := map[string]struct {
		topology volumes.Topology
		want     []string
	}{
		"strict":    {volumes.Topology{Enabled: true, Strict: true}, []string{"b"}},
		"preferred": {volumes.Topology{Enabled: true}, []string{"b", "a"}},
		"ignored":   {volumes.Topology{}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newZonedWorld(t, test.topology)
			w.createClaim(testClaim("data", onNode("node-b")))
			volume := w.awaitVolume("pvc-uid-data")
			requirement := w.driver.Creates()[0].GetAccessibilityRequirements()
			if got := zones(requirement.GetPreferred()); !slices.Equal(got, test.want) {
				t.Errorf("the driver is asked for zones %v, want %v", got, test.want)
			}
			if len(test.want) == 0 {
				return
			}
			if got := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]; got.Key != "zone" || !slices.Equal(got.Values, []string{"b"}) {
				t.Errorf("node affinity is %v", got)
			}
		})
	}
}

func (w *world) awaitUnscheduled(name string) {
	w.Helper()
	eventually(w.T, "the scheduler may choose another node", func() bool {
		claim, err := w.client.CoreV1().PersistentVolumeClaims("team-a").Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		return claim.Annotations[selectedNode] == ""
	})
}

func TestNoRoomWhereTheNodeIs(t *testing.T) {
	w := newZonedWorld(t, volumes.Topology{Enabled: true, Strict: true})
	w.driver.OnCreate(func(ctx context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if zones(request.GetAccessibilityRequirements().GetRequisite())[0] == "a" {
			return nil, status.Error(codes.ResourceExhausted, "full")
		}
		return inPreferred(ctx, request, next)
	})
	w.createClaim(testClaim("data", onNode("node-a")))
	w.awaitUnscheduled("data")
	w.awaitEvent("ProvisioningFailed", "ResourceExhausted: full")
	w.schedule("data", "node-b")
	w.awaitVolume("pvc-uid-data")
}

// schedule does what the scheduler does.
func (w *world) schedule(name, node string) {
	w.Helper()
	claim, err := w.client.CoreV1().PersistentVolumeClaims("team-a").Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	claim.Annotations[selectedNode] = node
	if err := writeClaim(w.client, claim); err != nil {
		w.Fatal(err)
	}
}

// The scheduler can be faster than the answer to the request that removes the node.
func TestNextNodeIsSelectedAtOnce(t *testing.T) {
	w := newZonedWorld(t, volumes.Topology{Enabled: true})
	prepend(w.client, "update", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		removal := updatedClaim(action)
		if removal == nil || removal.Annotations[selectedNode] != "" {
			return false, nil, nil
		}
		if err := writeClaim(w.client, removal); err != nil {
			return true, nil, err
		}
		claim := removal.DeepCopy()
		claim.Annotations[selectedNode] = "node-b"
		if err := writeClaim(w.client, claim); err != nil {
			return true, nil, err
		}
		w.awaitCached(claim)
		return true, removal, nil
	})
	w.createClaim(testClaim("data", onNode("node-gone")))
	w.awaitVolume("pvc-uid-data")
}

// awaitCached waits until the provisioner has seen this version of a claim.
func (w *world) awaitCached(claim *corev1.PersistentVolumeClaim) {
	w.Helper()
	claims := w.provisioner.Informers().Core().V1().PersistentVolumeClaims().Lister()
	eventually(w.T, "the claim is in the cache", func() bool {
		cached, err := claims.PersistentVolumeClaims(claim.Namespace).Get(claim.Name)
		return err == nil && cached.ResourceVersion == claim.ResourceVersion
	})
}

func TestSelectedNodeIsGone(t *testing.T) {
	w := newZonedWorld(t, volumes.Topology{Enabled: true})
	w.createClaim(testClaim("data", onNode("node-gone")))
	w.awaitUnscheduled("data")
	w.awaitEvent("ProvisioningFailed", "the selected node is gone: node-gone")
	if calls := w.driver.Creates(); len(calls) != 0 {
		t.Errorf("the driver was asked: %v", calls)
	}
}

func TestSelectedNodeHasNoCSINode(t *testing.T) {
	w := newZonedWorld(t, volumes.Topology{Enabled: true}, node("node-c", "c"))
	w.createClaim(testClaim("data", onNode("node-c")))
	w.awaitUnscheduled("data")
	w.awaitEvent("ProvisioningFailed", "node-c has no CSINode")
	if calls := w.driver.Creates(); len(calls) != 0 {
		t.Errorf("the driver was asked: %v", calls)
	}
}

func TestNodePluginIsNotRegisteredYet(t *testing.T) {
	unregistered := csiNode("node-c")
	unregistered.Spec.Drivers = nil
	w := newZonedWorld(t, volumes.Topology{Enabled: true}, node("node-c", "c"), unregistered)
	w.createClaim(testClaim("data", onNode("node-c")))
	w.awaitEvent("ProvisioningFailed", "has not reported the topology of node node-c")
	if _, err := w.client.StorageV1().CSINodes().Update(t.Context(), csiNode("node-c", "zone"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitVolume("pvc-uid-data")
}

func TestImmediateTopology(t *testing.T) {
	for _, immediate := range []bool{true, false} {
		w := newZonedWorld(t, volumes.Topology{Enabled: true, Immediate: immediate}, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "now"}, Provisioner: driverName,
		})
		w.createClaim(testClaim("data", func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = new("now") }))
		w.awaitVolume("pvc-uid-data")
		if got := zones(w.driver.Creates()[0].GetAccessibilityRequirements().GetRequisite()); immediate != slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("immediate %t: the driver is asked for zones %v", immediate, got)
		}
	}
}
