package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// awaitJournalEvent waits for an event on a ConfigMap of the world's journal.
func (w *world) awaitJournalEvent(reason string) {
	w.Helper()
	w.eventually("there is an event "+reason, func() error {
		list, err := w.client.CoreV1().Events(w.account.namespace).List(w.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err == nil && !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == "ConfigMap" && e.InvolvedObject.Name == w.journal()+".0"
		}) {
			err = fmt.Errorf("there are %d others", len(list.Items))
		}
		return err
	})
}

// Claims get their volumes while a policy refuses the journal, and somebody gets to know.
func TestPolicyRefusesTheJournalForAWhile(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	w.createClaim("before")
	w.awaitBound("before")
	p := w.refuseJournal()
	const claims = 10
	for i := range claims {
		w.createClaim(fmt.Sprint("data-", i))
	}
	for i := range claims {
		w.awaitBound(fmt.Sprint("data-", i))
	}
	w.awaitMetrics(r, "csi_provisioner_journal_failing 1\n", fmt.Sprintf("csi_provisioner_journal_unrecorded_volumes_total %d\n", claims))
	w.awaitJournalEvent("JournalNotWritten")
	if err := logged(r, "Provisioning without the journal"); err != nil {
		t.Error(err)
	}
	p.allow()
	w.awaitMetrics(r, "csi_provisioner_journal_failing 0\n")
	w.awaitJournalEvent("JournalWritten")
	entered, open := w.slow()
	w.createClaim("after")
	w.receive(entered)
	if notes, err := w.notes(); err != nil || len(notes) != 1 {
		t.Errorf("the journal has %v, %v", notes, err)
	}
	open()
	w.awaitBound("after")
	w.awaitEmptyJournal()
	w.settled()
}

// createNodes makes nodes of the driver with three topology keys, until the test ends: other
// tests run on the same API server.
func (w *world) createNodes(count int) {
	w.Helper()
	w.Cleanup(func() {
		ours := metav1.ListOptions{LabelSelector: "region." + w.name + "/region"}
		nodes := w.client.CoreV1().Nodes().DeleteCollection(context.Background(), metav1.DeleteOptions{}, ours)
		csiNodes := w.client.StorageV1().CSINodes().DeleteCollection(context.Background(), metav1.DeleteOptions{}, ours)
		if err := errors.Join(nodes, csiNodes); err != nil {
			w.Error(err)
		}
	})
	group, ctx := errgroup.WithContext(w.Context())
	group.SetLimit(20)
	for i := range count {
		group.Go(func() error {
			labels := map[string]string{
				"region." + w.name + "/region": "eu-central-1",
				"zone." + w.name + "/zone":     fmt.Sprintf("eu-central-1%c", 'a'+i%3),
				"node." + w.name + "/node":     fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/256, i%256),
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node(fmt.Sprint(i)), Labels: labels}}
			registered := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: labels}, Spec: storagev1.CSINodeSpec{
				Drivers: []storagev1.CSINodeDriver{{Name: w.driverName, NodeID: node.Name}},
			}}
			for key := range labels {
				registered.Spec.Drivers[0].TopologyKeys = append(registered.Spec.Drivers[0].TopologyKeys, key)
			}
			_, err := w.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			_, registeredErr := w.client.StorageV1().CSINodes().Create(ctx, registered, metav1.CreateOptions{})
			return errors.Join(err, registeredErr)
		})
	}
	if err := group.Wait(); err != nil {
		w.Fatal(err)
	}
}

// requests has the first request for each volume, and compares those that follow.
type requests struct {
	mu    sync.Mutex
	first map[string]*csi.CreateVolumeRequest
	other []string
}

// keep returns false for the first request.
func (r *requests) keep(request *csi.CreateVolumeRequest) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.first[request.GetName()]
	if first == nil {
		r.first[request.GetName()] = proto.CloneOf(request)
		return false
	}
	if !proto.Equal(first, request) {
		r.other = append(r.other, request.GetName())
	}
	return true
}

func (r *requests) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.first)
}

// Many creations are in flight, each with the topologies of many nodes, when the process is
// killed. The next one repeats each request as it was, also for claims that are gone.
func TestKilledWithManyCreationsOnManyNodes(t *testing.T) {
	const claims, nodes = 100, 1000
	// Otherwise the race detector spends most of the time on the log of the requests.
	const terse = "-v=2"
	w := newWorldWith(t, []string{"topology"})
	w.driver.SetServices(csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	w.createNodes(nodes)
	asked := &requests{first: map[string]*csi.CreateVolumeRequest{}}
	w.driver.OnCreate(func(ctx context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if !asked.keep(request) {
			// The volume is made, and nobody gets to know.
			if _, err := next(); err != nil {
				return nil, err
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return next()
	})
	first := w.start(terse)
	for i := range claims {
		w.createClaim(fmt.Sprint("data-", i))
	}
	w.eventually("all volumes are being created", func() error {
		if got := asked.count(); got != claims {
			return fmt.Errorf("%d are", got)
		}
		return nil
	})
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if notes, err := w.notes(); err != nil || len(notes) != claims {
		t.Fatalf("the journal has %d entries, %v", len(notes), err)
	}
	w.expectBoundedJournal(128 << 10)
	for i := range claims / 2 {
		w.deleteClaim(fmt.Sprint("data-", i))
	}
	w.start(terse)
	w.settled()
	w.awaitEmptyJournal()
	if len(asked.other) != 0 {
		t.Errorf("other requests were made for %v", asked.other)
	}
	for name, request := range asked.first {
		requirement := request.GetAccessibilityRequirements()
		if len(requirement.GetRequisite()) != nodes || len(requirement.GetPreferred()) != nodes {
			t.Fatalf("%s was requested with %d and %d topologies", name, len(requirement.GetRequisite()), len(requirement.GetPreferred()))
		}
	}
}

func (w *world) expectBoundedJournal(limit int) {
	w.Helper()
	for i := range 4 {
		object, err := w.client.CoreV1().ConfigMaps(w.account.namespace).Get(w.Context(), fmt.Sprintf("%s.%d", w.journal(), i), metav1.GetOptions{})
		if err != nil {
			continue // not needed
		}
		size := 0
		for _, data := range object.BinaryData {
			size += len(data)
		}
		w.Logf("%s has %d bytes", object.Name, size)
		if size > limit {
			w.Errorf("%s has %d bytes", object.Name, size)
		}
	}
}
