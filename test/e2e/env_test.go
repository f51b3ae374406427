package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// Generous, since system calls are slow in the guest; a test that passes
	// ends each wait much earlier.
	stepTimeout    = 2 * time.Minute
	cleanupTimeout = 2 * time.Minute
	pollInterval   = 100 * time.Millisecond
)

// env is one test's namespace and what it needs to look around.
type env struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	server    string
	// export is a directory of the test's own on an export: the share of its
	// classes, and the same path on the server's disk.
	export string
}

// newEnv makes a namespace that goes, with all that is in it, when the test ends.
func newEnv(t *testing.T) *env { return newEnvOn(t, os.Getenv("LAB_EXPORT_XFS")) }

func newEnvOn(t *testing.T, export string) *env {
	t.Helper()
	needsCluster(t)
	if err := use(t.Context(), manifestsDir, driverName); err != nil {
		t.Fatal(err)
	}
	return newEnvWithoutDriver(t, export, metav1.ObjectMeta{GenerateName: "e2e-"})
}

func needsCluster(t *testing.T) {
	t.Helper()
	if os.Getenv("LAB") != "cluster" {
		t.Skip("needs the lab's cluster: make test-e2e")
	}
}

// newEnvWithoutDriver leaves the driver as it is. meta is of the namespace.
func newEnvWithoutDriver(t *testing.T, export string, meta metav1.ObjectMeta) *env {
	t.Helper()
	client, err := newClient()
	if err != nil {
		t.Fatal(err)
	}
	e := &env{
		t:      t,
		client: client,
		server: os.Getenv("LAB_NFS_SERVER"),
	}
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.namespace = namespace.Name
	e.export = filepath.Join(export, e.namespace)
	if err := os.Mkdir(e.export, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.close)
	// Every pod of the test needs the account that is made for its namespace.
	e.eventually("default service account", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(e.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return e
}

func (e *env) close() {
	if e.t.Failed() {
		dumpNamespace(os.Stderr, e.client, e.namespace)
		dumpDriver(os.Stderr, e.client)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if err := e.client.CoreV1().Namespaces().Delete(ctx, e.namespace, metav1.DeleteOptions{}); err != nil {
		e.t.Errorf("delete namespace %s: %v", e.namespace, err)
	}
}

// eventually waits for check to return nil. What check said last is why it failed.
func (e *env) eventually(what string, check func(context.Context) error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), stepTimeout)
	defer cancel()
	started := time.Now()
	if err := poll(ctx, check); err != nil {
		e.t.Fatalf("%s: gave up after %v: %v", what, time.Since(started).Round(time.Second), err)
	}
	e.t.Logf("%s: after %v", what, time.Since(started).Round(time.Millisecond))
}

func poll(ctx context.Context, check func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// directories lists what is in the export besides the driver's own: the volumes.
func (e *env) directories() []string {
	e.t.Helper()
	entries, err := os.ReadDir(e.export)
	if err != nil {
		e.t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if name := entry.Name(); name != ".nfs-csi" {
			names = append(names, name)
		}
	}
	return names
}

// leftovers lists what the driver keeps on the export for anything but the
// named volumes: records, unfinished work and trash.
func (e *env) leftovers(volumes ...string) ([]string, error) {
	own := filepath.Join(e.export, ".nfs-csi")
	var left []string
	for _, room := range []string{"volumes", "tmp", "trash"} {
		entries, err := os.ReadDir(filepath.Join(own, room))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if room == "volumes" && contains(volumes, entry.Name()) {
				continue
			}
			left = append(left, filepath.Join(room, entry.Name()))
		}
	}
	return left, nil
}

// expectOnExport waits until the export holds exactly the named volumes.
func (e *env) expectOnExport(volumes ...string) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("export holds %q and nothing else", volumes), func(context.Context) error {
		if got := e.directories(); strings.Join(got, "\n") != strings.Join(sorted(volumes), "\n") {
			return fmt.Errorf("directories on the export: %q", got)
		}
		left, err := e.leftovers(volumes...)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left in .nfs-csi: %q", left)
		}
		return err
	})
}
