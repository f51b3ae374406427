package provisioner

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
)

// answer makes CreateVolume fail with the codes in turn, then work.
func answer(failures ...codes.Code) drivertest.CreateHook {
	var calls atomic.Int32
	return func(_ context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if call := int(calls.Add(1)); call <= len(failures) {
			return nil, status.Error(failures[call-1], "scripted failure")
		}
		return next()
	}
}

func respond(volume *csi.Volume) drivertest.CreateHook {
	return func(context.Context, *csi.CreateVolumeRequest, func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		return &csi.CreateVolumeResponse{Volume: volume}, nil
	}
}

func TestClaimBecomesVolume(t *testing.T) {
	w := newWorld(t, nil, testClass(map[string]string{"server": "a"}), testClaim("data"))
	got := w.awaitVolume("pvc-uid-data")
	got.TypeMeta, got.ManagedFields, got.ResourceVersion = metav1.TypeMeta{}, nil, ""
	want := `{
		"metadata": {
			"name": "pvc-uid-data",
			"annotations": {
				"pv.kubernetes.io/provisioned-by": "nfs.example",
				"volume.kubernetes.io/provisioner-deletion-secret-name": "",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace": ""
			},
			"finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"]
		},
		"spec": {
			"accessModes": ["ReadWriteMany"],
			"capacity": {"storage": "1Gi"},
			"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "team-a", "name": "data", "uid": "uid-data", "apiVersion": "v1"},
			"csi": {
				"driver": "nfs.example",
				"volumeHandle": "id-of-pvc-uid-data",
				"volumeAttributes": {"server": "a", "storage.kubernetes.io/csiProvisionerIdentity": "17-nfs.example"}
			},
			"mountOptions": ["hard"],
			"persistentVolumeReclaimPolicy": "Delete",
			"storageClassName": "fast",
			"volumeMode": "Filesystem"
		},
		"status": {}
	}`
	got.Spec.ClaimRef.ResourceVersion = ""
	if gotJSON := toJSON(t, got); gotJSON != normalJSON(t, want) {
		t.Errorf("got  %s\nwant %s", gotJSON, normalJSON(t, want))
	}
	w.awaitEvent("ProvisioningSucceeded", "pvc-uid-data")
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return normalJSON(t, string(text))
}

func normalJSON(t *testing.T, text string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	normal, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(normal)
}

func TestFailuresAreRetriedUntilItWorks(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.driver.OnCreate(answer(codes.Internal, codes.InvalidArgument, codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted))
	w.createClaim(testClaim("data"))
	w.awaitVolume("pvc-uid-data")
	if calls := len(w.driver.Creates()); calls != 6 {
		t.Errorf("%d calls, want 6", calls)
	}
	w.awaitEvent("ProvisioningFailed", "CreateVolume of CSI driver nfs.example: Internal: scripted failure")
	// Not the library's fixed delay of five minutes.
	w.awaitEvent("ProvisioningFailed", "InvalidArgument: scripted failure; check the StorageClass parameters")
}

// A create that may still be running must be finished although no claim needs the volume
// any more, or the volume would leak.
func TestClaimDeletedWhileDriverWorks(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	deleted := make(chan struct{})
	var calls atomic.Int32
	w.driver.OnCreate(func(_ context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if calls.Add(1) == 1 {
			return nil, status.Error(codes.DeadlineExceeded, "still at it")
		}
		select {
		case <-deleted:
			return next()
		default:
			return nil, status.Error(codes.Aborted, "still at it")
		}
	})
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "still at it")
	if err := w.client.CoreV1().PersistentVolumeClaims("team-a").Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	close(deleted)
	// It is Released as soon as the PV controller sees it, and then deleted.
	w.awaitVolume("pvc-uid-data")
}

// The same while the claim is still there, waiting for its finalizers.
func TestClaimIsGoingWhileDriverWorks(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	var going atomic.Bool
	w.driver.OnCreate(func(_ context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if !going.Load() {
			return nil, status.Error(codes.DeadlineExceeded, "still at it")
		}
		return next()
	})
	claim := testClaim("data")
	w.createClaim(claim)
	w.awaitEvent("ProvisioningFailed", "still at it")
	claim = claim.DeepCopy()
	claim.DeletionTimestamp, claim.Finalizers = new(metav1.Now()), []string{"example.com/hold"}
	if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), claim, "team-a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cache has it", func() bool {
		cached, err := w.provisioner.cluster.Claim("team-a", "data")
		return err == nil && cached.DeletionTimestamp != nil
	})
	going.Store(true)
	w.awaitVolume("pvc-uid-data")
}

func TestFinalFailureOfADeletedClaimIsForgotten(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.driver.OnCreate(func(context.Context, *csi.CreateVolumeRequest, func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		return nil, status.Error(codes.Internal, "no")
	})
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "no")
	if err := w.client.CoreV1().PersistentVolumeClaims("team-a").Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the driver is left in peace", func() bool {
		before := len(w.driver.Creates())
		time.Sleep(10 * testRetryMax)
		return len(w.driver.Creates()) == before
	})
}

func TestVolumeTooSmallIsDeleted(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.driver.OnCreate(respond(&csi.Volume{VolumeId: "small", CapacityBytes: 1}))
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "has 1 bytes, at least 1073741824 were requested; it was deleted")
	if deletes := w.driver.Deletes(); deletes[0].GetVolumeId() != "small" {
		t.Errorf("deleted %v", deletes)
	}
	if w.volume("pvc-uid-data") != nil {
		t.Error("it became a PersistentVolume nevertheless")
	}
}

func TestVolumeTooSmallThatCannotBeDeleted(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.driver.OnCreate(respond(&csi.Volume{VolumeId: "small", CapacityBytes: 1}))
	w.driver.OnDelete(func(context.Context, *csi.DeleteVolumeRequest, func() (*csi.DeleteVolumeResponse, error)) (*csi.DeleteVolumeResponse, error) {
		return nil, status.Error(codes.Internal, "stuck")
	})
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "it could not be deleted: DeleteVolume of CSI driver nfs.example: Internal: stuck")
	if err := w.client.CoreV1().PersistentVolumeClaims("team-a").Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// It exists, so its deletion is retried without the claim.
	tried := len(w.driver.Deletes())
	eventually(t, "more tries", func() bool { return len(w.driver.Deletes()) > tried+2 })
}

func TestVolumeWithoutID(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	w.driver.OnCreate(respond(&csi.Volume{}))
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", "without an ID")
	if len(w.driver.Deletes()) != 0 || w.volume("pvc-uid-data") != nil {
		t.Errorf("deletes %v, volume %v", w.driver.Deletes(), w.volume("pvc-uid-data"))
	}
}

func TestSecrets(t *testing.T) {
	class := testClass(map[string]string{
		"csi.storage.k8s.io/provisioner-secret-name":      "${pvc.name}",
		"csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
	})
	w := newWorld(t, nil, class)
	w.driver.OnCreate(func(_ context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if len(w.driver.Creates()) == 1 {
			return nil, status.Errorf(codes.Unauthenticated, "password %s is wrong", request.GetSecrets()["password"])
		}
		return next()
	})
	w.createClaim(testClaim("data"))
	w.awaitEvent("ProvisioningFailed", `read provisioner secret team-a/data, named by StorageClass parameters csi.storage.k8s.io/provisioner-secret-name and csi.storage.k8s.io/provisioner-secret-namespace: secrets "data" not found`)
	if calls := w.driver.Creates(); len(calls) != 0 {
		t.Fatalf("the driver was called without its secret: %v", calls)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "data"},
		Data:       map[string][]byte{"password": []byte("hunter22")},
	}
	if err := w.client.Tracker().Add(secret); err != nil {
		t.Fatal(err)
	}
	volume := w.awaitVolume("pvc-uid-data")
	if got := w.driver.Creates()[0].GetSecrets()["password"]; got != "hunter22" {
		t.Errorf("the driver got password %q", got)
	}
	if got := volume.Annotations["volume.kubernetes.io/provisioner-deletion-secret-name"]; got != "data" {
		t.Errorf("deletion secret is %q", got)
	}
	w.awaitEvent("ProvisioningFailed", "password ***stripped*** is wrong")
	for _, event := range w.events() {
		if strings.Contains(event.Message, "hunter22") {
			t.Errorf("the secret is in an event: %s", event.Message)
		}
	}
}

func TestVolumeIsSavedHoweverLongItTakes(t *testing.T) {
	w := newWorld(t, nil, testClass(nil))
	var tries atomic.Int32
	prepend(w.client, "create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if tries.Add(1) <= 20 {
			return true, nil, apierrors.NewInternalError(context.DeadlineExceeded)
		}
		return false, nil, nil
	})
	w.createClaim(testClaim("data"))
	w.awaitVolume("pvc-uid-data")
	if deletes := w.driver.Deletes(); len(deletes) != 0 {
		t.Errorf("the volume was deleted meanwhile: %v", deletes)
	}
	if calls := len(w.driver.Creates()); calls != 1 {
		t.Errorf("CreateVolume was called %d times", calls)
	}
}
