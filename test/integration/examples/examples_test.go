// Package examples has a real API server check the files of deploy/examples.
package examples

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/test/integration/cluster"
)

const (
	dir           = "../../../deploy/examples"
	snapshotCRDs  = "../../../deploy/helm/nfs-csi/files/snapshot-crds"
	kubeBinaryEnv = "KUBE_BINARY"
	startTimeout  = 2 * time.Minute
)

// The API server accepts each file as `kubectl apply` sends it, with every field known to it.
func TestExamplesAreAccepted(t *testing.T) {
	binary := os.Getenv(kubeBinaryEnv)
	if binary == "" {
		t.Skipf("needs %s", kubeBinaryEnv)
	}
	kubectl := startAPIServer(t, binary)
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("examples %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			if output, err := kubectl("apply", "--dry-run=server", "--validate=strict", "-f", file); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
	t.Run("a field that does not exist", func(t *testing.T) {
		content, err := os.ReadFile(filepath.Join(dir, "snapshot.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "snapshot.yaml")
		misspelt := strings.ReplaceAll(string(content), "persistentVolumeClaimName", "persistentVolumeClaim")
		if err := os.WriteFile(file, []byte(misspelt), 0o600); err != nil {
			t.Fatal(err)
		}
		if output, err := kubectl("apply", "--dry-run=server", "--validate=strict", "-f", file); err == nil {
			t.Errorf("accepted: %s", output)
		}
	})
}

// startAPIServer returns kubectl for an API server with the API of snapshots.
func startAPIServer(t *testing.T, binary string) func(args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c, err := cluster.StartAPIServer(ctx, binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubeconfig, err := c.Kubeconfig("admin", "admin")
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(args ...string) (string, error) {
		args = append([]string{"kubectl", "--kubeconfig=" + kubeconfig, "--namespace=examples"}, args...)
		output, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
		return string(output), err
	}
	// Without controllers, no one creates the account that pods get.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "examples"}}
	if _, err := c.Admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := c.Admin.CoreV1().ServiceAccounts("examples").Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", snapshotCRDs},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"},
	} {
		if output, err := kubectl(args...); err != nil {
			t.Fatal(fmt.Errorf("%w\n%s", err, output))
		}
	}
	return kubectl
}
