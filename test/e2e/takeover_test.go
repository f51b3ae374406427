package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	takenOver   = "nfs.csi.k8s.io"
	takeoverDir = "../../deploy/kubernetes/csi-driver-nfs"
)

// TestTakeover: with the overlay csi-driver-nfs, the driver serves a class of that name and
// a volume in the form of csi-driver-nfs (docs/migrate.md), and may write its journal.
func TestTakeover(t *testing.T) {
	e := newEnv(t)
	if err := use(t.Context(), takeoverDir, takenOver); err != nil {
		t.Fatal(err)
	}
	class := e.createClassOf(takenOver, nil)
	claim := e.createClaim(class)
	made := e.waitBound(claim)
	e.expectJournal("csi-provisioner.nfs-csi-k8s-io.")

	legacy := e.legacyClaim(class, "pvc-of-csi-driver-nfs", "kept since then")
	pod := e.startPod(legacy, `grep -qx "kept since then" /data/file && echo now >/data/added`)
	e.waitPhase(pod, corev1.PodSucceeded)
	if got := e.read(legacy.Spec.VolumeName, "added"); got != "now\n" {
		t.Errorf("the pod's file on the server holds %q", got)
	}
	e.deletePods(pod)
	e.deleteLegacy(legacy)
	e.expectOnExport(made.Name)
	e.deleteClaim(claim)
	e.expectOnExport()
}

// expectJournal waits for a ConfigMap whose name begins with prefix: without the permission
// to write it, csi-provisioner creates volumes and records none.
func (e *env) expectJournal(prefix string) {
	e.t.Helper()
	e.eventually("the journal "+prefix+" is written", func(ctx context.Context) error {
		maps, err := e.client.CoreV1().ConfigMaps(driverNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var names []string
		for _, m := range maps.Items {
			if strings.HasPrefix(m.Name, prefix) {
				return nil
			}
			names = append(names, m.Name)
		}
		return fmt.Errorf("the ConfigMaps of %s are %q", driverNamespace, names)
	})
}

// legacyClaim creates what csi-driver-nfs and external-provisioner leave behind: a
// directory without a record, a PersistentVolume with an ID of their form, and its claim.
func (e *env) legacyClaim(class, name, content string) *corev1.PersistentVolumeClaim {
	e.t.Helper()
	dir := filepath.Join(e.export, name)
	if err := os.Mkdir(dir, 0o777); err != nil {
		e.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte(content+"\n"), 0o666); err != nil {
		e.t.Fatal(err)
	}
	const claimName = "legacy"
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(claimSize)}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                            takenOver,
				"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
			},
			Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
		},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              class,
			Capacity:                      size,
			AccessModes:                   modes,
			MountOptions:                  []string{nfs42},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Namespace: e.namespace, Name: claimName},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{
					Driver:       takenOver,
					VolumeHandle: strings.Join([]string{e.server, strings.Trim(e.export, "/"), name, "", ""}, "#"),
					VolumeAttributes: map[string]string{
						"server":                           e.server,
						"share":                            e.export,
						"csi.storage.k8s.io/pv/name":       name,
						"csi.storage.k8s.io/pvc/name":      claimName,
						"csi.storage.k8s.io/pvc/namespace": e.namespace,
						"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-1234-" + takenOver,
						"subdir": name,
					},
				},
			},
		},
	}
	if _, err := e.client.CoreV1().PersistentVolumes().Create(e.t.Context(), volume, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	claim, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Create(e.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claimName},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			VolumeName:       name,
			AccessModes:      modes,
			Resources:        corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return claim
}

func (e *env) deleteLegacy(claim *corev1.PersistentVolumeClaim) {
	e.t.Helper()
	err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Delete(e.t.Context(), claim.Name, metav1.DeleteOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	e.eventually("volume "+claim.Spec.VolumeName+" is gone", func(ctx context.Context) error {
		_, err := e.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		return isGone("volume", err)
	})
}

// read returns a file of a volume from the server's disk.
func (e *env) read(volume, name string) string {
	e.t.Helper()
	content, err := os.ReadFile(filepath.Join(e.export, volume, name))
	if err != nil {
		e.t.Fatal(err)
	}
	return string(content)
}
