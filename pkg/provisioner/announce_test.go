package provisioner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
)

func announcing(config *Config) { config.AnnounceClasses = true }

// classOn is one whose storage is on a server.
func classOn(server string) *storagev1.StorageClass {
	class := testClass(map[string]string{"server": server})
	class.Name = "on-" + server
	return class
}

func TestClassesAreAnnounced(t *testing.T) {
	driver := drivertest.New(driverName)
	var away, refused, foreign atomic.Int32
	driver.OnCapacity(func(_ context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
		switch request.GetParameters()["server"] {
		case "away":
			if away.Add(1) <= 5 {
				return nil, status.Error(codes.Unavailable, "the server is dead")
			}
		case "refused":
			refused.Add(1)
			return nil, status.Error(codes.InvalidArgument, "no such parameter")
		default:
			foreign.Add(1)
		}
		return &csi.GetCapacityResponse{}, nil
	})
	other := classOn("foreign")
	other.Provisioner = "other.example"
	w := newWorldOf(t, driver, announcing, classOn("away"), classOn("refused"), other)
	eventually(t, "what fails is tried again", func() bool { return away.Load() == 6 })
	if refused.Load() != 1 || foreign.Load() != 0 {
		t.Errorf("%d calls for a class that the driver refuses, want 1; %d for another driver's", refused.Load(), foreign.Load())
	}
	if err := errors.Join(driver.Stop(), driver.Start(w.socket)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are announced again", func() bool { return away.Load() == 7 && refused.Load() == 2 })
}

// Servers that do not answer delay no volume, and are not tried all at once.
func TestDeadServersAreAnnounced(t *testing.T) {
	driver := drivertest.New(driverName)
	var now, most atomic.Int32
	driver.OnCapacity(func(ctx context.Context, _ *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	})
	objects := []runtime.Object{testClass(nil)}
	for i := range 20 {
		objects = append(objects, classOn(fmt.Sprint(i)))
	}
	w := newWorldOf(t, driver, announcing, objects...)
	eventually(t, "calls hang", func() bool { return now.Load() > 1 })
	w.createClaim(testClaim("data"))
	w.awaitVolume("pvc-uid-data")
	if got := most.Load(); got > 4 {
		t.Errorf("%d calls at the same time", got)
	}
	close(w.drain)
	if err := w.awaitStop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
}

// Other drivers are asked nothing that external-provisioner does not ask.
func TestClassesAreNotAnnouncedUnlessAsked(t *testing.T) {
	driver := drivertest.New(driverName)
	w := newWorldOf(t, driver, nil, testClass(nil))
	w.createClaim(testClaim("data"))
	w.awaitVolume("pvc-uid-data")
	if calls := driver.CapacityCalls(); calls != 0 {
		t.Errorf("%d calls", calls)
	}
}
