package capacity

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
)

const patience = 20 * time.Second

// driver has the same room everywhere, but where rooms says otherwise.
type driver struct {
	mu       sync.Mutex
	room     int64
	rooms    map[string]int64 // by zone
	largest  int64
	fails    error
	requests []*csi.GetCapacityRequest
}

func (d *driver) GetCapacity(_ context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, request)
	response := &csi.GetCapacityResponse{AvailableCapacity: d.room}
	if room, found := d.rooms[request.GetAccessibleTopology().GetSegments()["zone"]]; found {
		response.AvailableCapacity = room
	}
	if d.largest > 0 {
		response.MaximumVolumeSize = wrapperspb.Int64(d.largest)
	}
	return response, d.fails
}

func (d *driver) set(room int64, fails error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room, d.fails = room, fails
}

type world struct {
	*testing.T
	client    *fake.Clientset
	driver    *driver
	publisher *Publisher
}

func newWorld(t *testing.T, topology bool, objects ...runtime.Object) *world {
	t.Helper()
	return newWorldOf(t, &driver{room: 100}, topology, objects...)
}

func newWorldOf(t *testing.T, driver *driver, topology bool, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{T: t, client: fake.NewClientset(objects...), driver: driver}
	var err error
	w.publisher, err = New(Config{
		Client: w.client, Driver: w.driver, DriverName: driverName, Namespace: "ns", Topology: topology,
		Owners:       []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "controller", UID: "uid"}},
		PollInterval: 20 * time.Millisecond, Threads: 2, RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.publisher.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// await waits until the driver's objects are exactly these: class, segment, bytes.
func (w *world) await(want ...string) []storagev1.CSIStorageCapacity {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		list, err := w.client.StorageV1().CSIStorageCapacities("ns").List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		found := map[string]bool{}
		items := slices.DeleteFunc(list.Items, func(o storagev1.CSIStorageCapacity) bool { return o.Labels[driverLabel] != driverName })
		for _, o := range items {
			if t, ok := targetOf(&o); ok && o.Capacity != nil {
				found[t.key()+"="+o.Capacity.String()] = true
			}
		}
		missing := len(items) != len(want)
		for _, w := range want {
			missing = missing || !found[w]
		}
		if !missing {
			return items
		}
		if time.Now().After(deadline) {
			w.Fatalf("published are %v, want %v", found, want)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (w *world) awaitMetrics(want map[string]float64) {
	w.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.publisher)
	deadline := time.Now().Add(patience)
	for {
		families, err := registry.Gather()
		if err != nil {
			w.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
		}
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("metrics are %v, want %v", got, want)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func late(change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := class("late", driverName, storagev1.VolumeBindingWaitForFirstConsumer)
	for _, apply := range change {
		apply(c)
	}
	return c
}

func zoned(name, zone string) []runtime.Object {
	return []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}},
		&storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, TopologyKeys: []string{"zone"}}}},
		},
	}
}

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

func TestPublishedForEachSegment(t *testing.T) {
	// One object is of an earlier run, one of a segment that is no more, and one
	// is another driver's.
	foreign := object("foreign", "late", in(nil))
	foreign.Labels[driverLabel] = "other.example"
	foreign.Capacity = resource.NewQuantity(1, resource.BinarySI)
	driver := &driver{rooms: map[string]int64{"a": 7, "b": 9}, largest: 5, fails: errors.New("away")}
	w := newWorldOf(t, driver, true, append(append(zoned("n-a", "a"), zoned("n-b", "b")...), late(),
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
	objects := w.client.StorageV1().CSIStorageCapacities("ns")
	for name, want := range map[string]int64{"kept": 7, "foreign": 1} {
		if got, err := objects.Get(t.Context(), name, metav1.GetOptions{}); err != nil || got.Capacity.Value() != want {
			t.Errorf("%s has %v, %v, want %d", name, got, err, want)
		}
	}
	if _, err := objects.Get(t.Context(), "old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a segment that is no more is still published: %v", err)
	}
}

func TestDriverThatFailsIsAskedAgain(t *testing.T) {
	w := newWorld(t, false)
	w.driver.set(0, errors.New("away"))
	if err := w.client.Tracker().Add(late()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for asked := 0; asked < 3; {
		w.driver.mu.Lock()
		asked = len(w.driver.requests)
		w.driver.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the driver is not asked again")
		}
		time.Sleep(time.Millisecond)
	}
	w.await()
	w.driver.set(9, nil)
	w.await("late/=9")
}

func TestOwner(t *testing.T) {
	controller := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: new(true)}}
	}
	partial := func(version, kind, name string, owners []metav1.OwnerReference) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-of-" + "x", OwnerReferences: owners},
		}
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme,
		partial("v1", "Pod", "pod", controller("ReplicaSet", "set")),
		partial("apps/v1", "ReplicaSet", "set", controller("Deployment", "deployment")),
		partial("apps/v1", "Deployment", "deployment", nil))
	for level, want := range []string{"Pod/pod", "ReplicaSet/set", "Deployment/deployment"} {
		owners, err := Owner(t.Context(), client, "ns", "pod", level)
		if err != nil {
			t.Fatal(err)
		}
		if got := owners[0].Kind + "/" + owners[0].Name; got != want || owners[0].UID == "" {
			t.Errorf("level %d: %v, want %s", level, owners, want)
		}
	}
	if owners, err := Owner(t.Context(), client, "ns", "pod", NoOwner); owners != nil || err != nil {
		t.Errorf("no level: %v, %v", owners, err)
	}
	if _, err := Owner(t.Context(), client, "ns", "pod", 3); err == nil {
		t.Error("nothing is above a Deployment")
	}
}
