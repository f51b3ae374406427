package provisioner

import (
	"context"
	"errors"
	"sync"
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

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/sources"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/volumes"
)

// slowDriver works on each volume until finish, answers DeadlineExceeded before and
// AlreadyExists to another request for the same volume.
type slowDriver struct {
	mu     sync.Mutex
	first  *csi.CreateVolumeRequest
	calls  int
	finish error
	done   bool
}

func (s *slowDriver) create(ctx context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.first == nil {
		s.first = proto.CloneOf(request)
	}
	switch {
	case !proto.Equal(s.first, request):
		return nil, status.Error(codes.AlreadyExists, "another request")
	case !s.done:
		return nil, status.Error(codes.DeadlineExceeded, "still at it")
	case s.finish != nil:
		s.first = nil
		return nil, s.finish
	}
	return inPreferred(ctx, request, next)
}

// end ends the work, with an error or with the volume.
func (s *slowDriver) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish, s.done = err, true
}

func (s *slowDriver) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// awaitCalls waits for this many more calls.
func (s *slowDriver) awaitCalls(t *testing.T, more int) {
	t.Helper()
	before := s.count()
	eventually(t, "the call is repeated", func() bool { return s.count() >= before+more })
}

func (w *world) forbidJournal() {
	prepend(w.client, "*", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "journal", errors.New("no"))
	})
}

// While the driver works, the node goes, moves or is no longer the selected one, and
// other nodes come.
func TestTopologyChangesWhileTheDriverWorks(t *testing.T) {
	tests := map[string]func(w *world){
		"node added": func(w *world) {
			for _, object := range []runtime.Object{node("node-c", "0"), csiNode("node-c", "zone")} {
				if err := w.client.Tracker().Add(object); err != nil {
					w.Fatal(err)
				}
			}
		},
		"node relabelled": func(w *world) {
			if _, err := w.client.CoreV1().Nodes().Update(w.Context(), node("node-a", "z"), metav1.UpdateOptions{}); err != nil {
				w.Fatal(err)
			}
		},
		"node deleted": func(w *world) {
			if err := w.client.CoreV1().Nodes().Delete(w.Context(), "node-a", metav1.DeleteOptions{}); err != nil {
				w.Fatal(err)
			}
		},
		"another selected": func(w *world) { w.schedule("data", "node-b") },
	}
	ways := map[string]struct {
		before, between func(w *world)
	}{
		"one process":             {func(*world) {}, func(*world) {}},
		"restarted":               {func(*world) {}, func(w *world) { w.kill(); w.run() }},
		"the journal not written": {func(w *world) { w.forbidJournal() }, func(*world) {}},
	}
	for name, change := range tests {
		for wayName, way := range ways {
			t.Run(name+", "+wayName, func(t *testing.T) {
				slow := &slowDriver{}
				w := newZonedWorld(t, volumes.Topology{Enabled: true})
				w.driver.OnCreate(slow.create)
				way.before(w)
				w.createClaim(testClaim("data", onNode("node-a")))
				w.awaitEvent("ProvisioningFailed", "still at it")
				change(w)
				way.between(w)
				slow.awaitCalls(t, 2)
				slow.end(nil)
				volume := w.awaitVolume("pvc-uid-data")
				if got := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values; got[0] != "a" {
					t.Errorf("the volume is in zones %v", got)
				}
			})
		}
	}
}

// The request is the first one until its final answer, which reschedules the claim.
func TestRepeatedRequestThatFinallyFails(t *testing.T) {
	for _, restart := range []bool{false, true} {
		slow := &slowDriver{}
		w := newZonedWorld(t, volumes.Topology{Enabled: true, Strict: true})
		w.driver.OnCreate(slow.create)
		w.createClaim(testClaim("data", onNode("node-a")))
		w.awaitEvent("ProvisioningFailed", "still at it")
		if restart {
			w.kill()
			w.run()
		}
		slow.end(status.Error(codes.ResourceExhausted, "full"))
		w.awaitUnscheduled("data")
		slow.end(nil)
		w.schedule("data", "node-b")
		volume := w.awaitVolume("pvc-uid-data")
		if got := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values; got[0] != "b" {
			t.Errorf("restart %t: the volume is in zones %v", restart, got)
		}
	}
}

// A class is deleted and created anew under its name while the driver works.
func TestClassChangesWhileTheDriverWorks(t *testing.T) {
	slow := &slowDriver{}
	w := newWorld(t, nil, testClass(map[string]string{"server": "a"}))
	w.driver.OnCreate(slow.create)
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "still at it")
	changed := testClass(map[string]string{"server": "b"})
	changed.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain)
	if _, err := w.client.StorageV1().StorageClasses().Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	slow.awaitCalls(t, 2)
	if got := w.entry("pvc-uid-data").Request.GetParameters()["server"]; got != "a" {
		t.Errorf("recorded is a volume on server %q", got)
	}
	slow.end(nil)
	volume := w.awaitVolume("pvc-uid-data")
	if got := volume.Spec.PersistentVolumeReclaimPolicy; got != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("the reclaim policy is %s", got)
	}
	if got := volume.Spec.CSI.VolumeAttributes["server"]; got != "a" {
		t.Errorf("saved is a volume on server %q", got)
	}
}

// deleteSnapshot does what the API server does with a snapshot that has a finalizer.
func (w *world) deleteSnapshot(name string) {
	w.Helper()
	snapshots := w.dynamic.Resource(sources.SnapshotResource()).Namespace("team-a")
	snapshot, err := snapshots.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if len(snapshot.GetFinalizers()) == 0 {
		w.Fatalf("snapshot %s is not protected", name)
	}
	snapshot.SetDeletionTimestamp(new(metav1.Now()))
	if _, err := snapshots.Update(w.Context(), snapshot, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// restoreOfDeleted returns a world in which a snapshot is deleted while the driver restores
// it for the claim data.
func restoreOfDeleted(t *testing.T, snapshot string) (*world, *slowDriver) {
	t.Helper()
	slow := &slowDriver{}
	w := newSourceWorld(t)
	w.addSnapshot(snapshot)
	w.driver.OnCreate(slow.create)
	w.run()
	w.createClaim(restored("data", snapshot))
	w.awaitEvent("ProvisioningFailed", "still at it")
	w.deleteSnapshot(snapshot)
	return w, slow
}

func TestSnapshotDeletedWhileItIsRestored(t *testing.T) {
	for name, between := range map[string]func(w *world){
		"one process": func(*world) {},
		"restarted":   func(w *world) { w.kill(); w.run() },
	} {
		t.Run(name, func(t *testing.T) {
			w, slow := restoreOfDeleted(t, "monday")
			between(w)
			w.sweeps(3)
			slow.awaitCalls(t, 2)
			if !w.protected("monday") {
				t.Error("a snapshot that is being restored is not protected")
			}
			slow.end(nil)
			w.awaitVolume("pvc-uid-data")
			eventually(t, "the snapshot can go", func() bool { return !w.protected("monday") })
		})
	}
}

// The claim keeps waiting for the snapshot, which therefore must not be kept.
func TestSnapshotDeletedBeforeItsRestoreFails(t *testing.T) {
	w, slow := restoreOfDeleted(t, "monday")
	slow.end(status.Error(codes.Internal, "the copy failed"))
	w.awaitEvent("ProvisioningFailed", "it is being deleted")
	eventually(t, "the snapshot can go", func() bool { return !w.protected("monday") })
}

// With a short --volume-name-uuid-length, the volumes of two claims can have one name.
func TestVolumeOfThatNameIsBeingCreatedForAnotherClaim(t *testing.T) {
	naming, err := plan.NewNaming("pvc", 5)
	if err != nil {
		t.Fatal(err)
	}
	slow := &slowDriver{}
	w := newWorld(t, func(config *Config) { config.Naming = naming }, testClass(nil))
	w.driver.OnCreate(slow.create)
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "still at it")
	w.createClaim(testClaim("date"))
	w.awaitEvent("ProvisioningFailed", "that of a volume being created for claim team-a/data with UID uid-data")
	slow.end(nil)
	if owner := w.awaitVolume("pvc-uidda").Spec.ClaimRef; owner.Name != "data" {
		t.Errorf("the volume is claim %s's", owner.Name)
	}
}
