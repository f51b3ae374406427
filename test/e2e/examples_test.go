package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	examplesDir = "../../deploy/examples"
	// expansionExample is the one that changes the claim of another.
	expansionExample = "expansion.yaml"
)

// TestExamples applies the files of deploy/examples, with the lab's server in place of the
// one in them, and waits until all claims are bound and all pods run.
func TestExamples(t *testing.T) {
	e := newEnv(t)
	if err := os.MkdirAll(inlineShare(), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := e.examples()
	expansion := filepath.Join(t.TempDir(), expansionExample)
	if err := os.Rename(filepath.Join(dir, expansionExample), expansion); err != nil {
		t.Fatal(err)
	}
	e.applyExamples(dir)
	t.Cleanup(func() { e.deleteExamples(dir) })
	e.waitClaims(map[string]string{
		"data": "1Gi", "restored": "1Gi", "cloned": "2Gi", "kept": "1Gi", "archived": "1Gi", "retained": "1Gi",
		"models-for-training": "1Gi", "models-for-serving": "1Gi", "database": "1Gi", "imagenet": "1Gi",
	})
	e.eventually("the pod runs", func(ctx context.Context) error {
		pod, err := e.client.CoreV1().Pods(e.namespace).Get(ctx, "inline", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s: %v", pod.Status.Phase, pod.Status.Conditions)
		}
		return err
	})
	for _, path := range []string{"datasets/models", e.namespace + "/database"} {
		if _, err := os.Stat(filepath.Join(e.export, path)); err != nil {
			t.Error(err)
		}
	}
	e.applyExamples(expansion)
	e.waitClaims(map[string]string{"data": "2Gi"})
}

// examples writes the files with the lab's server and the shares of e.
func (e *env) examples() string {
	e.t.Helper()
	files, err := filepath.Glob(filepath.Join(examplesDir, "*.yaml"))
	if err != nil || len(files) == 0 {
		e.t.Fatalf("examples %v, %v", files, err)
	}
	dir := e.t.TempDir()
	lab := strings.NewReplacer("nas.example.com", e.server, "share: /srv/nfs", "share: "+e.export, "share: /srv/scratch", "share: "+inlineShare())
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			e.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(lab.Replace(string(content))), 0o600); err != nil {
			e.t.Fatal(err)
		}
	}
	return dir
}

func (e *env) applyExamples(path string) {
	e.t.Helper()
	if err := kubectl(e.t.Context(), "apply", "--namespace", e.namespace, "--validate=strict", "-f", path); err != nil {
		e.t.Fatal(err)
	}
}

// waitClaims waits until each of the claims is bound with its size.
func (e *env) waitClaims(sizes map[string]string) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("%d claims are bound", len(sizes)), func(ctx context.Context) error {
		var errs []error
		for name, size := range sizes {
			claim, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				errs = append(errs, err)
				continue
			}
			capacity := claim.Status.Capacity[corev1.ResourceStorage]
			if claim.Status.Phase != corev1.ClaimBound || capacity.String() != size {
				errs = append(errs, fmt.Errorf("%s is %s with %s, not %s", name, claim.Status.Phase, capacity.String(), size))
			}
		}
		return errors.Join(errs...)
	})
}

// deleteExamples deletes also the volumes that outlive their claims.
func (e *env) deleteExamples(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if err := kubectl(ctx, "delete", "--namespace", e.namespace, "--wait=false", "-f", dir); err != nil {
		e.t.Error(err)
	}
	err := poll(ctx, func(ctx context.Context) error {
		volumes, err := e.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var left []string
		for _, volume := range volumes.Items {
			if claim := volume.Spec.ClaimRef; claim == nil || claim.Namespace != e.namespace {
				continue
			}
			left = append(left, volume.Name)
			if volume.Status.Phase == corev1.VolumeReleased && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
				err := e.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("volumes %v are left", left)
		}
		return nil
	})
	if err != nil {
		e.t.Error(err)
	}
}
