package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestRestoreSize: a claim holds twice its size, and a backup tool restores its
// snapshot into a claim like it.
func TestRestoreSize(t *testing.T) {
	const held = 128 << 20 // of 64Mi
	e := newEnv(t)
	class := e.createClass(nil)
	claim := e.createClaim(class)
	source := e.waitBound(claim)
	e.write(source.Name, "data", "")
	if err := os.Truncate(filepath.Join(e.export, source.Name, "data"), held); err != nil {
		t.Fatal(err)
	}
	snapshot := e.createSnapshot(claim)
	e.waitSnapshotReady(snapshot)

	object, content := e.snapshotAndContent(snapshot)
	if size, _, err := unstructured.NestedString(object.Object, "status", "restoreSize"); err != nil || size != claimSize {
		t.Errorf("the snapshot's restoreSize is %q, %v, want %s", size, err, claimSize)
	}
	handle, _, err := unstructured.NestedString(content.Object, "status", "snapshotHandle")
	if err != nil {
		t.Fatal(err)
	}
	e.eventually("the size of the content is a metric", func(ctx context.Context) error {
		return e.hasMetric(ctx, fmt.Sprintf(`nfsplugin_snapshot_content_bytes\{.*snapshot="%s"\} %s`, regexp.QuoteMeta(handle), `1\.34217728e\+08`))
	})
	e.mustRestore(class, snapshot, held)

	// As it was made by an earlier driver, which reported the size of the content; and
	// the way out of docs/snapshots.md.
	e.setRestoreSize(snapshot, content.GetName(), held)
	refused := e.createClaimFrom(class, fromSnapshot(snapshot))
	e.waitWarning(refused, "it needs 134217728 bytes")
	size := resource.MustParse(claimSize)
	e.setRestoreSize(snapshot, content.GetName(), size.Value())
	e.waitBound(refused)
	e.deleteClaim(refused)

	e.deleteSnapshot(snapshot)
	e.deleteClaim(claim)
	e.expectOnExport()
}

func fromSnapshot(name string) *corev1.TypedLocalObjectReference {
	group := snapshotGroup
	return &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: name}
}

func (e *env) mustRestore(class, snapshot string, held int64) {
	e.t.Helper()
	restored := e.createClaimFrom(class, fromSnapshot(snapshot))
	volume := e.waitBound(restored)
	if info, err := os.Stat(filepath.Join(e.export, volume.Name, "data")); err != nil || info.Size() != held {
		e.t.Errorf("restored %v, %v, want %d bytes", info, err, held)
	}
	e.deleteClaim(restored)
}

func (e *env) snapshotAndContent(name string) (snapshot, content *unstructured.Unstructured) {
	e.t.Helper()
	snapshot, err := e.snapshotAPI("volumesnapshots").Namespace(e.namespace).Get(e.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	bound, _, err := unstructured.NestedString(snapshot.Object, "status", "boundVolumeSnapshotContentName")
	if err == nil {
		content, err = e.snapshotAPI("volumesnapshotcontents").Get(e.t.Context(), bound, metav1.GetOptions{})
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return snapshot, content
}

func (e *env) setRestoreSize(snapshot, content string, bytes int64) {
	e.t.Helper()
	_, err := e.snapshotAPI("volumesnapshotcontents").Patch(e.t.Context(), content, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"restoreSize":%d}}`, bytes), metav1.PatchOptions{}, "status")
	if err == nil {
		_, err = e.snapshotAPI("volumesnapshots").Namespace(e.namespace).Patch(e.t.Context(), snapshot, types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"restoreSize":"%d"}}`, bytes), metav1.PatchOptions{}, "status")
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// hasMetric looks for a line in what the controller's driver shows.
func (e *env) hasMetric(ctx context.Context, line string) error {
	pods := e.driverPods("controller")
	for _, pod := range pods {
		metrics, err := e.client.CoreV1().Pods(driverNamespace).ProxyGet("http", pod.Name, "9811", "/metrics", nil).DoRaw(ctx)
		if err == nil && regexp.MustCompile(line).Match(metrics) {
			return nil
		}
	}
	return fmt.Errorf("none of %d controllers shows %s", len(pods), line)
}
