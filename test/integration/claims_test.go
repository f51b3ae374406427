package integration

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

func TestClaimLifecycle(t *testing.T) {
	w := newWorld(t)
	r := w.start("--extra-create-metadata")
	claim := w.createClaim("data")
	volume := w.awaitBound("data")

	name := "pvc-" + string(claim.UID)
	spec := volume.Spec
	if volume.Name != name {
		t.Errorf("name is %s, want %s", volume.Name, name)
	}
	if size := spec.Capacity[corev1.ResourceStorage]; size.String() != "1Gi" {
		t.Errorf("capacity is %s", size.String())
	}
	if !slices.Equal(spec.AccessModes, claim.Spec.AccessModes) || !slices.Equal(spec.MountOptions, []string{"hard"}) {
		t.Errorf("access modes %v, mount options %v", spec.AccessModes, spec.MountOptions)
	}
	if spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || spec.StorageClassName != w.name {
		t.Errorf("reclaim policy %s, class %s", spec.PersistentVolumeReclaimPolicy, spec.StorageClassName)
	}
	if *spec.VolumeMode != corev1.PersistentVolumeFilesystem || spec.ClaimRef.UID != claim.UID {
		t.Errorf("volume mode %s, claim %v", *spec.VolumeMode, spec.ClaimRef)
	}
	if !slices.Contains(volume.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer") {
		t.Errorf("finalizers are %v", volume.Finalizers)
	}
	if spec.CSI.Driver != w.name || spec.CSI.VolumeHandle != "id-of-"+name || spec.CSI.ReadOnly || spec.CSI.FSType != "" {
		t.Errorf("source is %+v", spec.CSI)
	}
	identity := spec.CSI.VolumeAttributes["storage.kubernetes.io/csiProvisionerIdentity"]
	if !strings.HasSuffix(identity, "-"+w.name) {
		t.Errorf("identity is %q", identity)
	}
	wantAnnotations := map[string]string{
		"pv.kubernetes.io/provisioned-by":                            w.name,
		"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
		"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
	}
	if !maps.Equal(volume.Annotations, wantAnnotations) {
		t.Errorf("annotations are %v", volume.Annotations)
	}
	wantParameters := map[string]string{
		"server":                           "a",
		"csi.storage.k8s.io/pv/name":       name,
		"csi.storage.k8s.io/pvc/name":      "data",
		"csi.storage.k8s.io/pvc/namespace": w.name,
	}
	if got := w.driver.Creates()[0].GetParameters(); !maps.Equal(got, wantParameters) {
		t.Errorf("the driver got parameters %v", got)
	}

	w.deleteClaim("data")
	w.awaitVolumeGone(name)
	if volumes := w.driver.Volumes(); len(volumes) != 0 {
		t.Errorf("the driver still has %v", volumes)
	}
	w.awaitMetrics(r,
		`csi_sidecar_operations_seconds_count{driver_name="`+w.name+`",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 1`,
		`controller_persistentvolumeclaim_provision_total{class="`+w.name+`",source=""} 1`,
		`controller_persistentvolume_delete_total{class="`+w.name+`"}`,
		`workqueue_depth{name="claims"}`,
		`process_resident_memory_bytes`,
	)
}

func TestDriverErrorIsReportedAndRetried(t *testing.T) {
	w := newWorld(t)
	const failures = 5
	var mu sync.Mutex
	var calls []time.Time
	w.driver.OnCreate(func(_ context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		mu.Lock()
		defer mu.Unlock()
		if calls = append(calls, time.Now()); len(calls) <= failures {
			return nil, status.Error(codes.InvalidArgument, `unknown parameter "sever"`)
		}
		return next()
	})
	w.start()
	w.createClaim("data")
	w.awaitBound("data")
	w.awaitEvent("data", "ProvisioningFailed", `InvalidArgument: unknown parameter "sever"`)
	mu.Lock()
	defer mu.Unlock()
	// 50, 100, 200, 400, 800 ms: never earlier than the back-off says.
	wait := 50 * time.Millisecond
	for i := range failures {
		if waited := calls[i+1].Sub(calls[i]); waited < wait {
			t.Errorf("call %d came %s after the last, want at least %s", i+1, waited, wait)
		}
		wait *= 2
	}
}

// The volume exists at the driver and nowhere else when the provisioner dies.
func TestKilledBetweenCreateAndSave(t *testing.T) {
	w := newWorld(t)
	created := make(chan struct{}, 10)
	w.driver.OnCreate(func(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		response, err := next()
		created <- struct{}{}
		<-ctx.Done()
		return response, err
	})
	first := w.start()
	claim := w.createClaim("data")
	select {
	case <-created:
	case <-time.After(patience):
		t.Fatal("CreateVolume was not called")
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if volumes := w.volumes(); len(volumes) != 0 {
		t.Fatalf("there are volumes already: %v", volumes)
	}
	w.driver.OnCreate(nil)
	w.start()
	volume := w.awaitBound("data")
	if volume.Name != "pvc-"+string(claim.UID) || len(w.volumes()) != 1 || len(w.driver.Volumes()) != 1 {
		t.Errorf("bound to %s; volumes %d, at the driver %d, want one", volume.Name, len(w.volumes()), len(w.driver.Volumes()))
	}
	w.deleteClaim("data")
	w.awaitVolumeGone(volume.Name)
	if volumes := w.driver.Volumes(); len(volumes) != 0 {
		t.Errorf("left behind at the driver: %v", volumes)
	}
}

func TestDriverRestart(t *testing.T) {
	w := newWorld(t)
	w.start("--timeout=2s")
	w.createClaim("before")
	w.awaitBound("before")
	if err := w.driver.Stop(); err != nil {
		t.Fatal(err)
	}
	w.createClaim("after")
	w.awaitEvent("after", "ProvisioningFailed", "")
	if err := w.driver.Start(w.socket()); err != nil {
		t.Fatal(err)
	}
	w.awaitBound("after")
}

func TestAnotherDriverOnTheSocket(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	w.createClaim("before")
	w.awaitBound("before")
	if err := w.driver.Stop(); err != nil {
		t.Fatal(err)
	}
	w.driver.Rename("other")
	if err := w.driver.Start(w.socket()); err != nil {
		t.Fatal(err)
	}
	w.createClaim("after")
	if err := w.wait(r); err == nil || !strings.Contains(r.Tail(), "another CSI driver answers on the socket") {
		t.Errorf("ended with %v", err)
	}
	if len(w.driver.Volumes()) != 1 {
		t.Error("the other driver was used")
	}
}
