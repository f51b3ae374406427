package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	cloningFinalizer  = "provisioner.storage.kubernetes.io/cloning-protection"
	snapshotFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
)

func fromSnapshot(name string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: name}
	}
}

func fromClaim(name string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
}

func (w *world) giveCapabilities() {
	w.driver.SetCapabilities(
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	)
}

// slow makes CreateVolume wait: entered tells that it has begun, open lets it go on.
func (w *world) slow() (entered chan *csi.CreateVolumeRequest, open func()) {
	return w.slowOnly("")
}

// slowOnly is slow for one claim, or for all; with --extra-create-metadata.
func (w *world) slowOnly(claim string) (entered chan *csi.CreateVolumeRequest, open func()) {
	entered, opened := make(chan *csi.CreateVolumeRequest, 100), make(chan struct{})
	w.driver.OnCreate(func(ctx context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if claim != "" && request.GetParameters()["csi.storage.k8s.io/pvc/name"] != claim {
			return next()
		}
		entered <- request
		select {
		case <-opened:
			return next()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	return entered, func() { close(opened) }
}

func (w *world) receive(entered <-chan *csi.CreateVolumeRequest) *csi.CreateVolumeRequest {
	w.Helper()
	select {
	case request := <-entered:
		return request
	case <-time.After(patience):
		w.Fatal("CreateVolume was not called")
		return nil
	}
}

// expectProtected fails the test when a snapshot has not the finalizer.
func (w *world) expectProtected(snapshot string) {
	w.Helper()
	got, err := w.getSnapshot(w.name, snapshot)
	if err != nil || !slices.Contains(got.GetFinalizers(), snapshotFinalizer) {
		w.Fatalf("snapshot %s is not protected: %v, %v", snapshot, got, err)
	}
}

// awaitLetGo waits until a snapshot has no finalizers.
func (w *world) awaitLetGo(snapshot string) {
	w.Helper()
	w.eventually("the protection of snapshot "+snapshot+" is taken back", func() error {
		got, err := w.getSnapshot(w.name, snapshot)
		if err == nil && len(got.GetFinalizers()) > 0 {
			err = fmt.Errorf("finalizers are %v", got.GetFinalizers())
		}
		return err
	})
}

// Not parallel: this must be over before a test brings the APIs.
func TestNoSnapshotAPI(t *testing.T) {
	w := build(t)
	w.driverName = w.name
	w.setUp()
	w.giveCapabilities()
	w.start("--snapshot-orphan-sweep-interval=50ms")
	w.createClaim("restored", fromSnapshot("monday"))
	w.awaitEvent("restored", "ProvisioningFailed", "API is not installed in this cluster")
	w.createClaim("plain")
	w.awaitBound("plain")
	if len(w.driver.Volumes()) != 1 {
		t.Errorf("the driver has %v", w.driver.Volumes())
	}
}

func TestSnapshotDeletedDuringItsRestore(t *testing.T) {
	w := newWorld(t)
	w.giveCapabilities()
	w.snapshot(w.name, "monday")
	entered, open := w.slow()
	w.start()
	w.createClaim("restored", fromSnapshot("monday"))
	if handle := w.receive(entered).GetVolumeContentSource().GetSnapshot().GetSnapshotId(); handle != "snapshot-of-monday" {
		t.Errorf("restored from %q", handle)
	}
	if err := w.dynamic().Resource(snapshots).Namespace(w.name).Delete(t.Context(), "monday", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expectProtected("monday")
	open()
	volume := w.awaitBound("restored")
	w.eventually("the snapshot is gone", func() error {
		if _, err := w.getSnapshot(w.name, "monday"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there, %w", err)
		}
		return nil
	})
	if w.driver.Volumes()[volume.Name] == nil || len(w.driver.Volumes()) != 1 {
		t.Errorf("the driver has %v", w.driver.Volumes())
	}
}

func TestRestoreWaitsForItsSnapshot(t *testing.T) {
	w := newWorld(t)
	w.giveCapabilities()
	w.dynamic()
	w.start()
	w.createClaim("restored", fromSnapshot("monday"))
	w.awaitEvent("restored", "ProvisioningFailed", `volumesnapshots.snapshot.storage.k8s.io "monday" not found`)
	snapshot := w.snapshot(w.name, "monday")
	w.awaitBound("restored")
	w.awaitLetGo(snapshot.GetName())
}

func TestSourceDeletedDuringItsClone(t *testing.T) {
	w := newWorld(t)
	w.giveCapabilities()
	w.start()
	w.createClaim("source")
	source := w.awaitBound("source")
	entered, open := w.slow()
	w.createClaim("clone", fromClaim("source"))
	if handle := w.receive(entered).GetVolumeContentSource().GetVolume().GetVolumeId(); handle != source.Spec.CSI.VolumeHandle {
		t.Errorf("cloned %q, want %q", handle, source.Spec.CSI.VolumeHandle)
	}
	w.deleteClaim("source")
	claim, err := w.client.CoreV1().PersistentVolumeClaims(w.name).Get(t.Context(), "source", metav1.GetOptions{})
	if err != nil || !slices.Contains(claim.Finalizers, cloningFinalizer) {
		t.Fatalf("the source is not protected: %v, %v", claim, err)
	}
	open()
	w.awaitBound("clone")
	w.awaitVolumeGone(source.Name)
}

func TestFinalizersLeftBehind(t *testing.T) {
	w := newWorld(t)
	w.giveCapabilities()
	w.snapshot(w.name, "orphan", snapshotFinalizer, "example.com/other")
	w.snapshot(w.name, "wanted", snapshotFinalizer)
	w.createClaim("source", func(claim *corev1.PersistentVolumeClaim) { claim.Finalizers = []string{cloningFinalizer} })
	// It waits: its driver has an answer for nobody.
	w.createClaim("restored", fromSnapshot("wanted"))
	w.slow()
	w.start("--snapshot-orphan-sweep-interval=100ms")
	w.eventually("orphaned finalizers are removed", func() error {
		snapshot, err := w.getSnapshot(w.name, "orphan")
		if err != nil {
			return err
		}
		claim, err := w.client.CoreV1().PersistentVolumeClaims(w.name).Get(t.Context(), "source", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.Equal(snapshot.GetFinalizers(), []string{"example.com/other"}) || slices.Contains(claim.Finalizers, cloningFinalizer) {
			return fmt.Errorf("they are %v, %v", snapshot.GetFinalizers(), claim.Finalizers)
		}
		return nil
	})
	w.expectProtected("wanted")
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := w.dynamic().Resource(snapshots).Namespace(w.name).Patch(t.Context(), "orphan", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

func TestSourceInAnotherNamespace(t *testing.T) {
	w := newWorld(t)
	w.giveCapabilities()
	other := w.name + "-other"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
	if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.snapshot(other, "monday")
	w.start("--feature-gates=CrossNamespaceVolumeDataSource=true", "--retry-interval-max=200ms")
	w.createClaim("restored", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSourceRef = &corev1.TypedObjectReference{
			APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "monday", Namespace: &other,
		}
	})
	w.awaitEvent("restored", "ProvisioningFailed", "no ReferenceGrant there allows PersistentVolumeClaims of namespace "+w.name)
	if calls := w.driver.Creates(); len(calls) != 0 {
		t.Fatalf("the driver was called without a grant: %v", calls)
	}
	w.object(grants, "ReferenceGrant", other, "restore", map[string]any{"spec": map[string]any{
		"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": w.name}},
		"to":   []any{map[string]any{"group": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday"}},
	}})
	w.awaitBound("restored")
}

func TestAttributesClass(t *testing.T) {
	w := newWorld(t)
	w.giveCapabilities()
	for name, driver := range map[string]string{w.name: w.driverName, w.name + "-foreign": "other.example"} {
		class := &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver, Parameters: map[string]string{"mode": "0700"},
		}
		if _, err := w.client.StorageV1().VolumeAttributesClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	attributes := func(name string) func(*corev1.PersistentVolumeClaim) {
		return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeAttributesClassName = &name }
	}
	w.start()
	w.createClaim("foreign", attributes(w.name+"-foreign"))
	w.awaitEvent("foreign", "ProvisioningFailed", "is for CSI driver other.example")
	w.createClaim("gold", attributes(w.name))
	volume := w.awaitBound("gold")
	if got := volume.Spec.VolumeAttributesClassName; got == nil || *got != w.name {
		t.Errorf("the volume's class is %v", got)
	}
	if got := w.driver.Creates()[0].GetMutableParameters(); got["mode"] != "0700" {
		t.Errorf("the driver got %v", got)
	}
}

func TestExpandedParameters(t *testing.T) {
	w := newWorld(t, func(class *storagev1.StorageClass) {
		class.Parameters["csi.storage.k8s.io/expand-parameters"] = "true"
		class.Parameters["subDir"] = "${pvc.namespace}/${pvc.labels['app']}/${pvc.annotations['tier']}-${pvc.name}-${pv.name}"
	})
	w.start()
	w.createClaim("unlabelled")
	w.awaitEvent("unlabelled", "ProvisioningFailed", `the claim has no label "app"`)
	web := func(claim *corev1.PersistentVolumeClaim) { claim.Labels = map[string]string{"app": "web"} }
	w.createClaim("upwards", web, annotated("tier", "../other"))
	w.awaitEvent("upwards", "ProvisioningFailed", `${pvc.annotations['tier']} is "../other", which must have no slash`)
	w.createClaim("data", web, annotated("tier", "gold"))
	volume := w.awaitBound("data")
	if got, want := w.driver.Creates()[0].GetParameters()["subDir"], w.name+"/web/gold-data-"+volume.Name; got != want {
		t.Errorf("the driver got %q, want %q", got, want)
	}
}
