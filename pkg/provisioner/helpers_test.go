package provisioner

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/csiclient"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/sources"
)

const (
	driverName = "nfs.example"
	patience   = 20 * time.Second

	testRetryMax = 20 * time.Millisecond
)

// world is a provisioner with an API server and a driver around it.
type world struct {
	*testing.T
	driver  *drivertest.Driver
	socket  string
	client  *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	config  Config
	drain   chan struct{}
	stopped chan error
	ended   chan struct{}
	abandon context.CancelFunc
	// provisioner is the running one.
	provisioner *Provisioner
}

// reactions is implemented by both of client-go's fake clients.
type reactions interface {
	sync.Locker
	PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
}

// prepend adds a reaction to a client that is in use: Invokes holds the lock that
// PrependReactor does not take.
func prepend(client reactions, verb, resource string, reaction clienttesting.ReactionFunc) {
	client.Lock()
	defer client.Unlock()
	client.PrependReactor(verb, resource, reaction)
}

// refusePatches permits no more than the ClusterRole of external-provisioner does.
func refusePatches(clients ...reactions) {
	for _, client := range clients {
		for _, resource := range []string{"persistentvolumeclaims", "volumesnapshots"} {
			prepend(client, "patch", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("no verb patch"))
			})
		}
	}
}

// versionClaims gives a claim another resource version with every update, as the API
// server does.
func versionClaims(client *fake.Clientset) {
	prepend(client, "update", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		claim := updatedClaim(action)
		if claim == nil {
			return false, nil, nil
		}
		return true, claim, writeClaim(client, claim)
	})
}

func updatedClaim(action clienttesting.Action) *corev1.PersistentVolumeClaim {
	update, ok := action.(clienttesting.UpdateAction)
	if !ok {
		return nil
	}
	claim, _ := update.GetObject().(*corev1.PersistentVolumeClaim)
	return claim
}

func writeClaim(client *fake.Clientset, claim *corev1.PersistentVolumeClaim) error {
	version, _ := strconv.Atoi(claim.ResourceVersion) // a created one has none
	claim.ResourceVersion = strconv.Itoa(version + 1)
	return client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), claim, claim.Namespace)
}

// newWorld has the objects in its API server; change may be nil.
func newWorld(t *testing.T, change func(*Config), objects ...runtime.Object) *world {
	t.Helper()
	return newWorldOf(t, drivertest.New(driverName), change, objects...)
}

// newWorldOf is for a driver that is configured before the provisioner connects.
func newWorldOf(t *testing.T, driver *drivertest.Driver, change func(*Config), objects ...runtime.Object) *world {
	t.Helper()
	w := &world{T: t, driver: driver, client: fake.NewClientset(objects...), dynamic: newDynamic()}
	w.client.PrependWatchReactor("*", copyEvents(w.client))
	refusePatches(w.client, w.dynamic)
	versionClaims(w.client)
	w.configure(change)
	w.run()
	t.Cleanup(func() { w.kill() })
	return w
}

// configure starts the driver and connects to it.
func (w *world) configure(change func(*Config)) {
	t := w.T
	t.Helper()
	w.socket = startDriver(t, w.driver)
	naming, err := plan.NewNaming("pvc", plan.WholeUID)
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Client:  w.client,
		Dynamic: w.dynamic,
		Driver:  connect(t, w.socket),
		Metrics: metrics.New("controller"),
		Naming:  naming,
		Options: plan.Options{Identity: "17-" + driverName, PreventModeConversion: true, AttributesClasses: true},

		Journal: Journal{Namespace: "nfs-csi", Name: "csi-provisioner-test", EndDelay: 20 * time.Millisecond},
		Settings: Settings{
			ProtectionWorkers:   2,
			OrphanSweepInterval: 50 * time.Millisecond,
			RetryMin:            time.Millisecond,
			RetryMax:            testRetryMax,
			Workers:             4,
			DrainTimeout:        patience,
		},
	}
	if change != nil {
		change(&config)
	}
	w.config = config
}

// run starts a provisioner, like another process.
func (w *world) run() {
	w.Helper()
	w.runThis(w.newProvisioner())
}

func (w *world) newProvisioner() *Provisioner {
	w.Helper()
	provisioner, err := New(w.config)
	if err != nil {
		w.Fatal(err)
	}
	return provisioner
}

func (w *world) runThis(provisioner *Provisioner) {
	ctx, abandon := context.WithCancel(context.Background())
	w.provisioner = provisioner
	w.drain, w.stopped, w.ended, w.abandon = make(chan struct{}), make(chan error, 1), make(chan struct{}), abandon
	go func(drain <-chan struct{}, stopped chan<- error, ended chan<- struct{}) {
		defer close(ended)
		stopped <- provisioner.Run(ctx, drain)
	}(w.drain, w.stopped, w.ended)
}

// kill ends the provisioner with calls under way.
func (w *world) kill() {
	w.abandon()
	<-w.ended
}

// newDynamic has the APIs of snapshots and grants.
func newDynamic(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		sources.SnapshotResource(): "VolumeSnapshotList",
		sources.ContentResource():  "VolumeSnapshotContentList",
		sources.GrantResource():    "ReferenceGrantList",
	}, objects...)
}

func startDriver(t *testing.T, driver *drivertest.Driver) (socket string) {
	t.Helper()
	return drivertest.Serve(t, driver)
}

func connect(t *testing.T, socket string) *csiclient.Client {
	t.Helper()
	return drivertest.Connected(t, func(ctx context.Context) (*csiclient.Client, error) {
		return csiclient.Connect(ctx, csiclient.Config{Address: socket, Timeout: patience})
	})
}

// eventually fails the test when the condition does not become true in time.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	drivertest.Eventually(t, patience, what, condition)
}

func (w *world) volume(name string) *corev1.PersistentVolume {
	w.Helper()
	volume, err := w.client.CoreV1().PersistentVolumes().Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return volume
}

func (w *world) awaitVolume(name string) *corev1.PersistentVolume {
	w.Helper()
	eventually(w.T, "volume "+name+" exists", func() bool { return w.volume(name) != nil })
	return w.volume(name)
}

func (w *world) events() []corev1.Event {
	w.Helper()
	list, err := w.client.CoreV1().Events(metav1.NamespaceAll).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return list.Items
}

func (w *world) awaitEvent(reason, text string) {
	w.Helper()
	eventually(w.T, reason+" event that says "+text, func() bool {
		return slices.ContainsFunc(w.events(), func(event corev1.Event) bool {
			return event.Reason == reason && strings.Contains(event.Message, text)
		})
	})
}

func (w *world) createClaim(claim *corev1.PersistentVolumeClaim) {
	w.Helper()
	if _, err := w.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(w.Context(), claim, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) awaitStop() error {
	w.Helper()
	select {
	case err := <-w.stopped:
		return err
	case <-time.After(patience):
		w.Fatal("Run does not return")
		return nil
	}
}

func testClass(parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "fast"},
		Provisioner:       driverName,
		Parameters:        parameters,
		MountOptions:      []string{"hard"},
		ReclaimPolicy:     new(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: new(storagev1.VolumeBindingImmediate),
	}
}

func testClaim(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "team-a",
			Name:        name,
			UID:         types.UID("uid-" + name),
			Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": driverName},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("fast"),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
	for _, apply := range change {
		apply(claim)
	}
	return claim
}
