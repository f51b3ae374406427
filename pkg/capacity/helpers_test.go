package capacity

import (
	"context"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	typedstoragev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	clienttesting "k8s.io/client-go/testing"
)

const patience = 20 * time.Second

// driver has the same capacity everywhere, except where rooms differs.
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

func (d *driver) setRooms(rooms map[string]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rooms = rooms
}

type world struct {
	*testing.T
	client    *fake.Clientset
	driver    *driver
	publisher *Publisher
}

func newWorld(t *testing.T, topology bool, objects ...runtime.Object) *world {
	t.Helper()
	return newWorldOf(t, &driver{room: 100}, func(c *Config) { c.Topology = topology }, objects...)
}

func newWorldOf(t *testing.T, driver *driver, change func(*Config), objects ...runtime.Object) *world {
	t.Helper()
	w := &world{T: t, client: fake.NewClientset(objects...), driver: driver}
	refuseBeforeWatch(w.client)
	shared := informers.NewSharedInformerFactory(w.client, 0)
	config := Config{
		Client: w.client, Informers: shared, Driver: w.driver, DriverName: driverName, Namespace: "ns",
		Owners:       []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "controller", UID: "uid"}},
		PollInterval: 20 * time.Millisecond, Threads: 2, RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond,
	}
	change(&config)
	var err error
	if w.publisher, err = New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	shared.StartWithContext(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.publisher.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		shared.Shutdown()
	})
	return w
}

// refuseBeforeWatch refuses changes between list and watch: unlike an API server, the
// fake does not report them to the watch.
func refuseBeforeWatch(client *fake.Clientset) {
	watched := false // guarded by the fake's own lock
	client.PrependWatchReactor("csistoragecapacities", func(clienttesting.Action) (bool, watch.Interface, error) {
		watched = true
		return false, nil, nil
	})
	for _, verb := range []string{"create", "update", "delete"} {
		client.PrependReactor(verb, "csistoragecapacities", func(clienttesting.Action) (bool, runtime.Object, error) {
			if watched {
				return false, nil, nil
			}
			return true, nil, apierrors.NewServiceUnavailable("nobody watches yet")
		})
	}
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

func (w *world) objects() typedstoragev1.CSIStorageCapacityInterface {
	return w.client.StorageV1().CSIStorageCapacities("ns")
}

// room is -1 for an object without a capacity.
func (w *world) room(name string) int64 {
	w.Helper()
	got, err := w.objects().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if got.Capacity == nil {
		return -1
	}
	return got.Capacity.Value()
}

func (w *world) eventually(what string, condition func() bool) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			w.Fatalf("never came true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// awaitAsked waits for that many calls of the driver.
func (w *world) awaitAsked(times int) {
	w.Helper()
	w.eventually("the driver is asked again", func() bool {
		w.driver.mu.Lock()
		defer w.driver.mu.Unlock()
		return len(w.driver.requests) >= times
	})
}
