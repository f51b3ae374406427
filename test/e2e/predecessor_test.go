package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nfs-csi/nfs-csi/test/predecessor"
)

// place is the export of the test, for what predecessors have left on it.
func (e *env) place() predecessor.Place {
	return predecessor.Place{Server: e.server, Share: e.export, Dir: e.export}
}

// legacyVolumes creates the PersistentVolumes and claims of a file of testdata, and their
// directories.
func (e *env) legacyVolumes(file string) []predecessor.Volume {
	e.t.Helper()
	e.apply(file)
	volumes, err := e.place().Volumes(filepath.Join("testdata", file))
	if err != nil {
		e.t.Fatal(err)
	}
	return volumes
}

func (e *env) waitClaim(name, volume string) {
	e.t.Helper()
	e.eventually("claim "+name+" is Bound to "+volume, func(ctx context.Context) error {
		got, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (got.Status.Phase != corev1.ClaimBound || got.Spec.VolumeName != volume) {
			err = fmt.Errorf("it is %s, to %q", got.Status.Phase, got.Spec.VolumeName)
		}
		return err
	})
}

func (e *env) request(claim, size string) {
	e.t.Helper()
	_, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Patch(e.t.Context(), claim, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size), metav1.PatchOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) waitSize(claim, volume, size string) {
	e.t.Helper()
	want := resource.MustParse(size)
	e.eventually(claim+" and its volume have "+size, func(ctx context.Context) error {
		got, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pv, err := e.client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claimed, capacity := got.Status.Capacity[corev1.ResourceStorage], pv.Spec.Capacity[corev1.ResourceStorage]
		if claimed.Cmp(want) != 0 || capacity.Cmp(want) != 0 {
			return fmt.Errorf("the claim has %s, the volume %s", claimed.String(), capacity.String())
		}
		return nil
	})
}

func (e *env) mustRead(dir, name, want string) {
	e.t.Helper()
	if got := e.read(dir, name); got != want {
		e.t.Errorf("%s of %s holds %q, want %q", name, dir, got, want)
	}
}

// legacySnapshot makes a VolumeSnapshot of a volume ready, in the place of csi-driver-nfs and
// external-snapshotter: with an archive on the export, and its ID in the content.
func (e *env) legacySnapshot(name, source, ending, content string) {
	e.t.Helper()
	var bound, id string
	e.eventually("snapshot "+name+" has a content", func(ctx context.Context) error {
		snapshot, err := e.snapshotAPI("volumesnapshots").Namespace(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		id = "snapshot-" + string(snapshot.GetUID())
		bound, _, err = unstructured.NestedString(snapshot.Object, "status", "boundVolumeSnapshotContentName")
		if err == nil && bound == "" {
			err = fmt.Errorf("its status is %v", snapshot.Object["status"])
		}
		return err
	})
	handle, err := e.place().Archive(id, source, ending, content)
	if err != nil {
		e.t.Fatal(err)
	}
	_, err = e.snapshotAPI("volumesnapshotcontents").Patch(e.t.Context(), bound, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"snapshotHandle":%q,"readyToUse":true,"creationTime":%d,"restoreSize":184}}`, handle, time.Now().UnixNano()),
		metav1.PatchOptions{}, "status")
	if err != nil {
		e.t.Fatal(err)
	}
	e.waitSnapshotReady(name)
}
