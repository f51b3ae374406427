package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func TestImmediateClaimsAreTakenByOneNode(t *testing.T) {
	a, b := newNodes(t, testClass(nil))
	runNodes(t, a, b)
	const claims = 20
	for i := range claims {
		a.createClaim(testClaim(fmt.Sprintf("data-%d", i)))
	}
	for i := range claims {
		a.awaitVolume(fmt.Sprintf("pvc-uid-data-%d", i))
	}
	if got := len(a.driver.Volumes()) + len(b.driver.Volumes()); got != claims {
		t.Errorf("there are %d volumes for %d claims", got, claims)
	}
}

// Something else changes a claim just as a node takes it.
func TestClaimIsTakenDespiteAConflict(t *testing.T) {
	a, _ := newNodes(t, testClass(nil))
	var updates atomic.Int32
	prepend(a.client, "update", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if updates.Add(1) > 2 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), "data", errors.New("modified"))
	})
	runNodes(t, a)
	a.createClaim(testClaim("data"))
	a.awaitVolume("pvc-uid-data")
	if got := updates.Load(); got != 3 {
		t.Errorf("%d updates, of which 2 were to conflict", got)
	}
}

func TestNodeWithoutRoomLeavesClaimsToOthers(t *testing.T) {
	a, b := newNodes(t, testClass(map[string]string{"csi.storage.k8s.io/fstype": "xfs", "kind": "fast"}))
	for _, w := range []*world{a, b} {
		w.driver.SetCapabilities(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
		w.config.Driver = connect(t, w.socket)
	}
	runNodes(t, a, b)
	a.createClaim(testClaim("data"))
	eventually(t, "both have looked", func() bool { return a.driver.CapacityCalls() > 1 && b.driver.CapacityCalls() > 1 })
	if a.volume("pvc-uid-data") != nil {
		t.Fatal("a volume was made where there is no room")
	}
	b.driver.SetCapacity(1 << 30)
	a.awaitVolume("pvc-uid-data")
	if calls := a.driver.Creates(); len(calls) != 0 {
		t.Errorf("node a was asked for %v", calls)
	}
}

// A driver need not declare GET_CAPACITY to be asked, nor answer to get a claim.
func TestCapacityThatIsUnknown(t *testing.T) {
	a, _ := newNodes(t, testClass(map[string]string{"csi.storage.k8s.io/fstype": "xfs", "kind": "fast"}))
	asked := make(chan *csi.GetCapacityRequest, 1)
	a.driver.OnCapacity(func(_ context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
		asked <- request
		return nil, status.Error(codes.Internal, "disk is busy")
	})
	runNodes(t, a)
	a.createClaim(testClaim("data"))
	a.awaitVolume("pvc-uid-data")
	want := a.driver.Creates()[0]
	if got := <-asked; !maps.Equal(got.GetParameters(), map[string]string{"kind": "fast"}) ||
		len(got.GetVolumeCapabilities()) != 1 || !proto.Equal(got.GetVolumeCapabilities()[0], want.GetVolumeCapabilities()[0]) ||
		!proto.Equal(got.GetAccessibleTopology(), want.GetAccessibilityRequirements().GetRequisite()[0]) {
		t.Errorf("the driver was asked for the capacity of %v, and then for %v", got, want)
	}
}

func TestCloneIsMadeWhereItsSourceIs(t *testing.T) {
	a, b := newNodes(t, testClass(nil))
	for _, w := range []*world{a, b} {
		w.driver.SetCapabilities(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_CLONE_VOLUME)
		w.config.Driver = connect(t, w.socket)
	}
	runNodes(t, a, b)
	source := testClaim("source", onNode("node-b"))
	a.createClaim(source)
	source = source.DeepCopy()
	source.Spec.VolumeName = a.awaitVolume("pvc-uid-source").Name
	source.Status.Phase = corev1.ClaimBound
	for i := range 5 {
		a.createClaim(testClaim(fmt.Sprintf("clone-%d", i), func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
		}))
	}
	// Its node is unknown until it is bound.
	if _, err := a.client.CoreV1().PersistentVolumeClaims("team-a").Update(t.Context(), source, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		a.awaitVolume(fmt.Sprintf("pvc-uid-clone-%d", i))
	}
	if calls := a.driver.Creates(); len(calls) != 0 {
		t.Errorf("node a was asked for %v", calls)
	}
}

func TestImmediateClaimsCanBeLeftToOthers(t *testing.T) {
	a, b := newNodes(t, testClass(nil))
	a.config.Node.Immediate = false
	runNodes(t, a, b)
	a.createClaim(testClaim("data"))
	a.createClaim(testClaim("placed", onNode("node-a")))
	a.awaitVolume("pvc-uid-data")
	a.awaitVolume("pvc-uid-placed")
	if got := len(b.driver.Volumes()); got != 1 {
		t.Errorf("node b has %d volumes", got)
	}
}
