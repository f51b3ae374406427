package provisioner

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/csiclient"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// gate lets CreateVolume calls wait until it is opened.
type gate struct {
	entered chan string
	opened  chan struct{}
}

func newGate() *gate { return &gate{entered: make(chan string, 100), opened: make(chan struct{})} }

func (g *gate) create(ctx context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
	g.entered <- request.GetName()
	select {
	case <-g.opened:
		return next()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func oneWorker(config *Config) { config.Workers = 1 }

// The API server needs a moment for each event.
func TestDrainWritesTheLastEvents(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	prepend(w.client, "create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		time.Sleep(10 * time.Millisecond)
		return false, nil, nil
	})
	entered, opened := make(chan struct{}), make(chan struct{})
	w.driver.OnCreate(func(context.Context, *csi.CreateVolumeRequest, func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		entered <- struct{}{}
		<-opened
		return nil, status.Error(codes.Internal, "no room")
	})
	const claims = 4
	for i := range claims {
		w.createClaim(testClaim(fmt.Sprintf("data-%d", i)))
	}
	for range claims {
		<-entered
	}
	close(w.drain)
	close(opened)
	if err := w.awaitStop(); err != nil {
		t.Errorf("Run() = %v after a clean stop", err)
	}
	failed := 0
	for _, event := range w.events() {
		if event.Reason == "ProvisioningFailed" {
			failed++
		}
	}
	if failed != claims {
		t.Errorf("there are events about %d of %d failures", failed, claims)
	}
}

func TestDrainFinishesWhatIsUnderWay(t *testing.T) {
	w := newWorld(t, oneWorker, testClass(nil))
	g := newGate()
	w.driver.OnCreate(g.create)
	w.createClaim(testClaim("first"))
	if first := <-g.entered; first != "pvc-uid-first" {
		t.Fatalf("first call is for %s", first)
	}
	w.createClaim(testClaim("queued"))
	close(w.drain)
	select {
	case err := <-w.stopped:
		t.Fatalf("Run() = %v with a call under way", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(g.opened)
	if err := w.awaitStop(); err != nil {
		t.Errorf("Run() = %v after a clean stop", err)
	}
	if w.volume("pvc-uid-first") == nil {
		t.Error("the volume under way was not saved")
	}
	if calls := w.driver.Creates(); len(calls) != 1 {
		t.Errorf("new work was begun when stopping: %v", calls)
	}
}

func TestDrainRemovesTheVolumeWhoseDeletionIsUnderWay(t *testing.T) {
	w := newWorld(t, oneWorker, releasedVolume("pvc-0"))
	w.awaitGone("pvc-0")
	entered, open := make(chan struct{}), make(chan struct{})
	w.driver.OnDelete(func(_ context.Context, _ *csi.DeleteVolumeRequest, next func() (*csi.DeleteVolumeResponse, error)) (*csi.DeleteVolumeResponse, error) {
		close(entered)
		<-open
		return next()
	})
	if err := w.client.Tracker().Add(releasedVolume("pvc-1")); err != nil {
		t.Fatal(err)
	}
	<-entered
	close(w.drain)
	close(open)
	if err := w.awaitStop(); err != nil {
		t.Errorf("Run() = %v after a clean stop", err)
	}
	if w.volume("pvc-1") != nil {
		t.Error("the PersistentVolume stayed behind without its volume")
	}
}

func TestDrainIsBounded(t *testing.T) {
	w := newWorld(t, func(config *Config) { config.DrainTimeout = 20 * time.Millisecond }, testClass(nil))
	g := newGate()
	w.driver.OnCreate(g.create)
	w.createClaim(testClaim("data"))
	<-g.entered
	close(w.drain)
	if err := w.awaitStop(); !errors.Is(err, ErrDrainTimeout) {
		t.Errorf("Run() = %v, want %v", err, ErrDrainTimeout)
	}
}

func TestEndOfContextAbandonsCalls(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	g := newGate()
	w.driver.OnCreate(g.create)
	w.createClaim(testClaim("data"))
	<-g.entered
	w.abandon()
	if err := w.awaitStop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run() = %v, want %v", err, context.Canceled)
	}
	if w.volume("pvc-uid-data") != nil {
		t.Error("a volume was saved after the end")
	}
}

func TestLostDriverEndsRun(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.createClaim(testClaim("before"))
	w.awaitVolume("pvc-uid-before")
	if err := w.driver.Stop(); err != nil {
		t.Fatal(err)
	}
	w.driver.Rename("other.example")
	if err := w.driver.Start(w.socket); err != nil {
		t.Fatal(err)
	}
	w.createClaim(testClaim("after"))
	if err := w.awaitStop(); !errors.Is(err, csiclient.ErrDriverChanged) {
		t.Errorf("Run() = %v, want %v", err, csiclient.ErrDriverChanged)
	}
	if volumes := w.driver.Volumes(); volumes["pvc-uid-after"] != nil {
		t.Error("the other driver was used")
	}
}

func TestSurvivesARestartOfTheDriver(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.createClaim(testClaim("before"))
	w.awaitVolume("pvc-uid-before")
	if err := w.driver.Stop(); err != nil {
		t.Fatal(err)
	}
	w.createClaim(testClaim("after"))
	if err := w.driver.Start(w.socket); err != nil {
		t.Fatal(err)
	}
	w.awaitVolume("pvc-uid-after")
}

func TestNewRefusesBadConfig(t *testing.T) {
	naming, err := plan.NewNaming("pvc", plan.WholeUID)
	if err != nil {
		t.Fatal(err)
	}
	good := Config{
		Client:  fake.NewClientset(),
		Dynamic: newDynamic(),
		Driver:  connect(t, startDriver(t, drivertest.New(driverName))),
		Naming:  naming,

		Journal: Journal{Namespace: "n", Name: "j"},
		Settings: Settings{
			RetryMin:            time.Second,
			RetryMax:            time.Second,
			Workers:             1,
			ProtectionWorkers:   1,
			OrphanSweepInterval: time.Second,
		},
	}
	if _, err := New(good); err != nil {
		t.Fatalf("New() = %v for a good config", err)
	}
	tests := map[string]func(*Config){
		"no client":         func(c *Config) { c.Client = nil },
		"no driver":         func(c *Config) { c.Driver = nil },
		"no naming":         func(c *Config) { c.Naming = plan.Naming{} },
		"no retry interval": func(c *Config) { c.RetryMin = 0 },
		"shrinking retry":   func(c *Config) { c.RetryMax = time.Millisecond },
		"no workers":        func(c *Config) { c.Workers = 0 },
		"no dynamic client": func(c *Config) { c.Dynamic = nil },
		"no journal":        func(c *Config) { c.Journal.Name = "" },
		"no protection":     func(c *Config) { c.ProtectionWorkers = 0 },
		"no sweep":          func(c *Config) { c.OrphanSweepInterval = -1 },
		"negative drain":    func(c *Config) { c.DrainTimeout = -1 },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			bad := good
			change(&bad)
			if _, err := New(bad); err == nil {
				t.Error("accepted")
			}
		})
	}
}
