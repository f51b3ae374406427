package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestSidecars has external-resizer and external-snapshotter call the driver.
func TestSidecars(t *testing.T) {
	e := newEnv(t)
	class := e.createClass(nil)
	claim := e.createClaim(class)
	source := e.waitBound(claim)
	e.write(source.Name, "greeting", "hello\n")

	t.Run("snapshot", func(t *testing.T) { e.in(t).snapshotAndRestore(class, claim) })
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
	e.eventually("no snapshot is left on the export", func(context.Context) error {
		left, err := filepath.Glob(filepath.Join(e.export, ".nfs-csi/snapshots/*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are %q", left)
		}
		return err
	})
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
