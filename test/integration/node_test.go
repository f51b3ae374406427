package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
)

// onNode is a driver that makes volumes on the node it runs on.
type onNode struct {
	*drivertest.Driver
	zone, socket string
}

func (w *world) startDriverOn(zone string) *onNode {
	w.Helper()
	n := &onNode{Driver: drivertest.New(w.driverName), zone: zone, socket: filepath.Join(w.dir, zone+".sock")}
	n.SetServices(csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	n.SetCapabilities(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	n.SetNodeTopology(map[string]string{w.name + "/zone": zone})
	n.OnCreate(w.madeOn(zone))
	if err := n.Start(n.socket); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = n.Stop() })
	w.allowJournalOf(zone)
	return n
}

func (w *world) madeOn(zone string) drivertest.CreateHook {
	return func(_ context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		response, err := next()
		response.GetVolume().AccessibleTopology = []*csi.Topology{{Segments: map[string]string{w.name + "/zone": zone}}}
		return response, err
	}
}

// allowJournalOf permits the journal of one node, as docs/topology.md says.
func (w *world) allowJournalOf(zone string) {
	w.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "journal-" + w.node(zone)},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "update"},
			ResourceNames: []string{w.journal() + "." + w.node(zone) + ".0"},
		}},
	}
	if _, err := w.client.RbacV1().Roles(w.account.namespace).Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.bind(w.account.namespace, "Role", role.Name)
}

// startOn runs csi-provisioner for the node with the driver.
func (w *world) startOn(n *onNode, args ...string) *replica {
	w.Helper()
	environment := []string{"NODE_NAME=" + w.node(n.zone), "NAMESPACE=" + w.account.namespace, os.Getenv(provisionerEnv)}
	return w.run("/usr/bin/env", append(environment, w.args(append(args, "--csi-address="+n.socket,
		"--node-deployment", "--node-deployment-base-delay=200ms", "--node-deployment-max-delay=1s"))...)...)
}

func (w *world) createImmediateClass() string {
	w.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: w.name + "-now"}, Provisioner: w.driverName}
	if _, err := w.client.StorageV1().StorageClasses().Create(w.Context(), class, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return class.Name
}

// Volumes of claims with a node are made there, those of claims without one on any
// node but once, and all of them are deleted where they are.
func TestNodeDeployment(t *testing.T) {
	w := newZonedWorld(t, []string{"topology", "capacity"}, "a", "b")
	now := w.createImmediateClass()
	nodes := []*onNode{w.startDriverOn("a"), w.startDriverOn("b")}
	for _, n := range nodes {
		n.SetCapacity(5 << 30)
		w.startOn(n, "--enable-capacity", "--capacity-ownerref-level=-1", "--kube-api-capacity-qps=50", "--kube-api-capacity-burst=50")
	}
	w.awaitCapacity(map[string]string{"a": "5Gi", "b": "5Gi"})
	const immediate = 20
	var claims []string
	for i := range immediate {
		claims = append(claims, fmt.Sprintf("now-%d", i))
		w.createClaim(claims[i], func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &now })
	}
	for _, n := range nodes {
		claims = append(claims, "on-"+n.zone)
		w.createClaim("on-" + n.zone)
		w.schedule("on-"+n.zone, w.node(n.zone))
	}
	perZone := map[string]int{}
	var names []string
	for _, claim := range claims {
		volume := w.awaitBound(claim)
		zone := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
		perZone[zone]++
		names = append(names, volume.Name)
		if claim == "on-a" && zone != "a" || claim == "on-b" && zone != "b" {
			t.Errorf("the volume of %s is in %s", claim, zone)
		}
	}
	for _, n := range nodes {
		w.expectOwnJournal(n)
		if got := len(n.Volumes()); got != perZone[n.zone] {
			t.Errorf("node %s has %d volumes, %d PersistentVolumes are on it", n.zone, got, perZone[n.zone])
		}
	}
	for _, claim := range claims {
		w.deleteClaim(claim)
	}
	for _, name := range names {
		w.awaitVolumeGone(name)
	}
	for _, n := range nodes {
		if left, calls := len(n.Volumes()), len(n.Deletes()); left != 0 || calls != perZone[n.zone] {
			t.Errorf("node %s has %d volumes and was told to delete %d, want 0 and %d", n.zone, left, calls, perZone[n.zone])
		}
	}
}

// expectOwnJournal finds the journal of a node owned by its CSINode, with which it goes.
func (w *world) expectOwnJournal(n *onNode) {
	w.Helper()
	journal, err := w.client.CoreV1().ConfigMaps(w.account.namespace).Get(w.Context(), w.journal()+"."+w.node(n.zone)+".0", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	owner, err := w.client.StorageV1().CSINodes().Get(w.Context(), w.node(n.zone), metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if owners := journal.OwnerReferences; len(owners) != 1 || owners[0].Kind != "CSINode" || owners[0].UID != owner.UID {
		w.Errorf("the journal of node %s has the owners %v, want its CSINode", owner.Name, owners)
	}
}

// A node's process dies with an unfinished volume. The claim goes to the other
// node, and what is left on the first is deleted there when it comes back.
func TestNodeDeploymentCrash(t *testing.T) {
	w := newZonedWorld(t, []string{"topology"}, "a", "b")
	a, b := w.startDriverOn("a"), w.startDriverOn("b")
	making := make(chan struct{}, 1)
	a.OnCreate(func(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		response, err := next()
		making <- struct{}{}
		<-ctx.Done()
		return response, err
	})
	first := w.startOn(a)
	w.createClaim("data")
	w.schedule("data", w.node("a"))
	select {
	case <-making:
	case <-time.After(patience):
		t.Fatal("node a is not asked for a volume")
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	a.OnCreate(w.madeOn("a"))
	w.schedule("data", w.node("b"))
	w.startOn(b)
	volume := w.awaitBound("data")
	w.startOn(a)
	w.eventually("the volume on node a is deleted", func() error {
		if left := len(a.Volumes()); left != 0 {
			return errors.New("it is there")
		}
		return nil
	})
	if got := len(b.Volumes()); got != 1 || len(b.Deletes()) != 0 {
		t.Errorf("node b has %d volumes, and was told to delete %v", got, b.Deletes())
	}
	w.deleteClaim("data")
	w.awaitVolumeGone(volume.Name)
	if got := len(b.Volumes()); got != 0 {
		t.Errorf("node b has %d volumes", got)
	}
}
