package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestSidecars has external-resizer and external-snapshotter call the driver.
func TestSidecars(t *testing.T) {
	e := newEnv(t)
	class := e.createClass(nil)
	claim := e.createClaim(class)
	source := e.waitBound(claim)
	e.write(source.Name, "greeting", "hello\n")

	t.Run("snapshot", func(t *testing.T) { e.in(t).snapshotAndRestore(class, claim) })
	t.Run("group snapshot", func(t *testing.T) { e.in(t).groupSnapshot(class, claim) })
	t.Run("clone", func(t *testing.T) { e.in(t).clone(class, claim) })
	t.Run("expand", func(t *testing.T) { e.in(t).expand(claim, "128Mi") })
	e.deleteClaim(claim)
	e.expectOnExport()
}

// expand asks for more and waits until claim and volume say so.
func (e *env) expand(claim *corev1.PersistentVolumeClaim, size string) {
	e.t.Helper()
	e.request(claim.Name, size)
	e.waitSize(claim.Name, volumeName(claim), size)
}

// snapshotAndRestore leaves nothing behind but the volume of the claim.
func (e *env) snapshotAndRestore(class string, claim *corev1.PersistentVolumeClaim) {
	e.t.Helper()
	source := volumeName(claim)
	snapshot := e.createSnapshot(claim)
	e.waitSnapshotReady(snapshot)
	e.write(source, "greeting", "changed since\n")
	restored := e.createClaimFrom(class, fromSnapshot(snapshot))
	volume := e.waitBound(restored)
	if got := e.read(volume.Name, "greeting"); got != "hello\n" {
		e.t.Errorf("the restored file holds %q", got)
	}
	e.deleteClaim(restored)
	e.deleteSnapshot(snapshot)
	e.expectOnExport(source)
	e.expectNone(".nfs-csi/snapshots/*")
}

// groupSnapshot has a group of the claim and of one more, and restores a member.
func (e *env) groupSnapshot(class string, claim *corev1.PersistentVolumeClaim) {
	e.t.Helper()
	const label = "test-group"
	second := e.createClaim(class)
	e.waitBound(second)
	for _, member := range []*corev1.PersistentVolumeClaim{claim, second} {
		e.write(volumeName(member), "greeting", "from "+member.Name)
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, label, e.namespace)
		_, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Patch(e.t.Context(), member.Name,
			types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			e.t.Fatal(err)
		}
	}
	group := e.createGroupSnapshot(label, e.namespace)
	e.waitTaken("volumegroupsnapshots", group)
	restored := e.createClaimFrom(class, fromSnapshot(e.memberOf(second)))
	volume := e.waitBound(restored)
	if got := e.read(volume.Name, "greeting"); got != "from "+second.Name {
		e.t.Errorf("the restored member holds %q", got)
	}
	e.deleteClaim(restored)
	e.deleteGroupSnapshot(group)
	e.expectNone(".nfs-csi/groups/*")
	e.deleteClaim(second)
	e.expectOnExport(volumeName(claim))
}

// expectNone waits until nothing on the export matches.
func (e *env) expectNone(pattern string) {
	e.t.Helper()
	e.eventually("the export has no "+pattern, func(context.Context) error {
		left, err := filepath.Glob(filepath.Join(e.export, pattern))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are %q", left)
		}
		return err
	})
}

// memberOf is the snapshot of the claim, of which there is one.
func (e *env) memberOf(claim *corev1.PersistentVolumeClaim) (name string) {
	e.t.Helper()
	snapshots, err := e.snapshotAPI("volumesnapshots").Namespace(e.namespace).List(e.t.Context(), metav1.ListOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	var names []string
	for _, snapshot := range snapshots.Items {
		source, _, err := unstructured.NestedString(snapshot.Object, "spec", "source", "persistentVolumeClaimName")
		if err != nil {
			e.t.Fatal(err)
		}
		if source == claim.Name {
			names = append(names, snapshot.GetName())
		}
	}
	if len(names) != 1 {
		e.t.Fatalf("the snapshots of the claim are %q, of %d", names, len(snapshots.Items))
	}
	return names[0]
}

func (e *env) clone(class string, claim *corev1.PersistentVolumeClaim) {
	e.t.Helper()
	e.write(volumeName(claim), "greeting", "to be cloned\n")
	copied := e.createClaimFrom(class, &corev1.TypedLocalObjectReference{
		Kind: "PersistentVolumeClaim", Name: claim.Name,
	})
	volume := e.waitBound(copied)
	if got := e.read(volume.Name, "greeting"); got != "to be cloned\n" {
		e.t.Errorf("the cloned file holds %q", got)
	}
	e.deleteClaim(copied)
	e.expectOnExport(volumeName(claim))
}

// in is the environment for a subtest.
func (e *env) in(t *testing.T) *env {
	sub := *e
	sub.t = t
	return &sub
}

// write puts a file into a volume, on the server's own disk.
func (e *env) write(volume, name, content string) {
	e.t.Helper()
	if err := os.WriteFile(filepath.Join(e.export, volume, name), []byte(content), 0o600); err != nil {
		e.t.Fatal(err)
	}
}
