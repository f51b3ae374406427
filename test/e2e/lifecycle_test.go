package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// TestClaimToPodAndBack is the whole life of a volume, as `make demo` shows it.
func TestClaimToPodAndBack(t *testing.T) {
	for _, export := range []string{"LAB_EXPORT_EXT4", "LAB_EXPORT_XFS"} {
		t.Run(export, func(t *testing.T) {
			t.Parallel()
			e := newEnvOn(t, os.Getenv(export))
			class := e.createClass(nil)
			claim := e.createClaim(class)
			e.expectPendingThenBound(claim)
			volume := e.waitBound(claim)
			e.checkVolume(claim, volume, class)
			e.expectOnExport(volume.Name)

			file := filepath.Join(e.export, volume.Name, "greeting")
			writer := e.startPod(claim, "echo hello > /data/greeting && exec sleep 3600")
			e.waitPhase(writer, corev1.PodRunning)
			e.waitContent(file, "hello\n")
			reader := e.startPod(claim, `test "$(cat /data/greeting)" = hello`)
			e.waitPhase(reader, corev1.PodSucceeded)
			e.expectMounted(volume.Name, writer)

			e.deletePods(writer, reader)
			e.waitUnmounted(volume.Name)
			e.waitContent(file, "hello\n")
			e.deleteClaim(claim)
			e.expectOnExport()
		})
	}
}

// TestFilesOfOthersAreDeleted: pods leave files that root does not own, in
// directories that only their owners may enter or take from.
func TestFilesOfOthersAreDeleted(t *testing.T) {
	e := newEnv(t)
	claim := e.createClaim(e.createClass(nil))
	volume := e.waitBound(claim)
	const somebody, somebodyElse = 1000, 1001
	for dir, mode := range map[string]os.FileMode{"private": 0o700, "closed": 0o500, "sticky": os.ModeSticky | 0o777} {
		path := filepath.Join(e.export, volume.Name, dir)
		file := filepath.Join(path, "file")
		if err := errors.Join(
			os.Mkdir(path, 0o755),
			os.WriteFile(file, []byte("x"), 0o600),
			os.Chown(file, somebodyElse, somebodyElse),
			os.Chown(path, somebody, somebody),
			os.Chmod(path, mode),
		); err != nil {
			t.Fatal(err)
		}
	}
	e.deleteClaim(claim)
	e.expectOnExport()
}

// expectPendingThenBound watches the claim from its creation on.
func (e *env) expectPendingThenBound(claim *corev1.PersistentVolumeClaim) {
	e.t.Helper()
	if claim.Status.Phase != corev1.ClaimPending {
		e.t.Errorf("a new claim is %q, want Pending", claim.Status.Phase)
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), stepTimeout)
	defer cancel()
	watcher, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector:   "metadata.name=" + claim.Name,
		ResourceVersion: claim.ResourceVersion,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			e.t.Fatalf("claim %s is not Bound after %v", claim.Name, stepTimeout)
		case event, open := <-watcher.ResultChan():
			if !open || event.Type == watch.Error {
				e.t.Fatalf("watch of claim %s ended: %v", claim.Name, event.Object)
			}
			got, ok := event.Object.(*corev1.PersistentVolumeClaim)
			if !ok {
				e.t.Fatalf("watch of claim %s gave a %T", claim.Name, event.Object)
			}
			switch got.Status.Phase {
			case corev1.ClaimBound:
				return
			case corev1.ClaimPending:
			default:
				e.t.Fatalf("claim %s is %s", claim.Name, got.Status.Phase)
			}
		}
	}
}

func (e *env) checkVolume(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, class string) {
	e.t.Helper()
	type facts struct {
		Class, Driver, Server, Share string
		Claim                        types.UID
		Modes                        []corev1.PersistentVolumeAccessMode
		Options                      []string
		Reclaim                      corev1.PersistentVolumeReclaimPolicy
		Provisioner                  string
		Capacity                     string
	}
	if volume.Spec.CSI == nil || volume.Spec.ClaimRef == nil {
		e.t.Fatalf("volume %s is no CSI volume of a claim: %+v", volume.Name, volume.Spec)
	}
	size := volume.Spec.Capacity[corev1.ResourceStorage]
	want := facts{
		Class: class, Driver: driverName, Server: e.server, Share: e.export,
		Claim:       claim.UID,
		Modes:       []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Options:     []string{nfs42},
		Reclaim:     corev1.PersistentVolumeReclaimDelete,
		Provisioner: driverName,
		Capacity:    claimSize,
	}
	got := facts{
		Class: volume.Spec.StorageClassName, Driver: volume.Spec.CSI.Driver,
		Server: volume.Spec.CSI.VolumeAttributes["server"], Share: volume.Spec.CSI.VolumeAttributes["share"],
		Claim:       volume.Spec.ClaimRef.UID,
		Modes:       volume.Spec.AccessModes,
		Options:     volume.Spec.MountOptions,
		Reclaim:     volume.Spec.PersistentVolumeReclaimPolicy,
		Provisioner: volume.Annotations["pv.kubernetes.io/provisioned-by"],
		Capacity:    size.String(),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		e.t.Errorf("volume %s differs (-want +got):\n%s", volume.Name, diff)
	}
	if volume.Spec.CSI.VolumeHandle == "" {
		e.t.Errorf("volume %s has no handle", volume.Name)
	}
}

// waitContent waits until the file on the server's own disk has the content.
func (e *env) waitContent(file, want string) {
	e.t.Helper()
	e.eventually(file+" on the server's disk", func(context.Context) error {
		got, err := os.ReadFile(file)
		if err == nil && string(got) != want {
			err = fmt.Errorf("content is %q, want %q", got, want)
		}
		return err
	})
}
