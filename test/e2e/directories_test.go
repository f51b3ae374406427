package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (e *env) createNamedClaim(class, name string) *corev1.PersistentVolumeClaim {
	e.t.Helper()
	return e.createClaimAs(metav1.ObjectMeta{Name: name}, class, resource.MustParse(claimSize), nil)
}

// dropClaim deletes a claim whose volume stays.
func (e *env) dropClaim(claim *corev1.PersistentVolumeClaim) {
	e.t.Helper()
	claims := e.client.CoreV1().PersistentVolumeClaims(e.namespace)
	if err := claims.Delete(e.t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
	e.eventually("claim "+claim.Name+" is gone", func(ctx context.Context) error {
		_, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		return isGone("claim", err)
	})
}

// giveUp has a volume deleted that its class retains.
func (e *env) giveUp(volume string) {
	e.t.Helper()
	volumes := e.client.CoreV1().PersistentVolumes()
	patch := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	if _, err := volumes.Patch(e.t.Context(), volume, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		e.t.Fatal(err)
	}
	e.eventually("volume "+volume+" is gone", func(ctx context.Context) error {
		_, err := volumes.Get(ctx, volume, metav1.GetOptions{})
		return isGone("volume", err)
	})
}

// TestRecreatedClaim: with reclaimPolicy Retain and reuse: claim a claim that is
// deleted and made again has its data, and the old volume's deletion leaves it alone.
func TestRecreatedClaim(t *testing.T) {
	e := newEnv(t)
	retain := func(class *storagev1.StorageClass) {
		policy := corev1.PersistentVolumeReclaimRetain
		class.ReclaimPolicy = &policy
	}
	class := e.createClassOf(driverName, map[string]string{
		"subDir": "${pvc.metadata.namespace}/${pvc.metadata.name}", "onDelete": "delete", "reuse": "claim",
	}, retain)
	first := e.createNamedClaim(class, "db")
	old := e.waitBound(first)
	e.finishPod(first, "echo precious >/data/file")
	e.dropClaim(first)
	second := e.createNamedClaim(class, "db")
	now := e.waitBound(second)
	if now.Name == old.Name || now.Spec.CSI.VolumeAttributes["subDir"] != e.namespace+"/db" {
		t.Errorf("the claim has the volume %s with %v", now.Name, now.Spec.CSI.VolumeAttributes)
	}
	e.giveUp(old.Name)
	e.finishPod(second, "grep precious /data/file")
	e.dropClaim(second)
	e.giveUp(now.Name)
	if _, err := os.Stat(filepath.Join(e.export, e.namespace)); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

// TestSharedDirectory: claims of a class with shared: "true" have one directory, which
// outlives them.
func TestSharedDirectory(t *testing.T) {
	e := newEnv(t)
	class := e.createClass(map[string]string{"subDir": "datasets/common", "shared": "true"})
	writer, reader := e.createClaim(class), e.createClaim(class)
	e.waitBound(writer)
	e.waitBound(reader)
	e.finishPod(writer, "echo common >/data/file")
	e.deleteClaim(writer)
	e.finishPod(reader, "grep common /data/file")
	e.deleteClaim(reader)
	b, err := os.ReadFile(filepath.Join(e.export, "datasets/common/file"))
	if err != nil || string(b) != "common\n" {
		t.Errorf("after both claims its file holds %q, %v", b, err)
	}
}
