package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nfs-csi/nfs-csi/test/e2e/walkthrough"
	"github.com/nfs-csi/nfs-csi/test/manifests"
)

const (
	// A driver with the permissions and the flags of external-provisioner.
	exampleDir       = "../e2e/testdata/external-provisioner"
	exampleDriver    = "example.csi.example.com"
	exampleNamespace = "example"

	volumeFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
)

// TestExchange starts csi-provisioner in the place of an external-provisioner that has ended in
// the middle of its work, with the permissions and the flags that it had.
func TestExchange(t *testing.T) {
	w := newExchange(t)
	w.giveCapabilities()
	w.leaseOfAnother()

	w.createClaim("new")
	created := w.createdOnly("created", func(*corev1.PersistentVolumeClaim) {}, nil)
	released := w.releasedVolume("released", true)
	halfDeleted := w.releasedVolume("half-deleted", false)
	w.deleteVolume(halfDeleted)
	source := w.boundVolume("source")
	w.createClaim("source", func(claim *corev1.PersistentVolumeClaim) {
		claim.Finalizers = []string{cloningFinalizer}
		claim.Spec.VolumeName = source.Name
	})
	cloned := w.createdOnly("cloned", fromClaim("source"), &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source.Spec.CSI.VolumeHandle},
	}})

	w.run(os.Getenv(provisionerEnv), w.exchangedArgs()...)
	w.awaitBound("new")
	for claim, name := range map[string]string{"created": created, "cloned": cloned} {
		if got := w.awaitBound(claim); got.Name != name || got.Spec.CSI.VolumeHandle != w.driver.Volumes()[name].GetVolumeId() {
			t.Errorf("claim %s got %s, want the volume that was created for it, %s", claim, got.Name, name)
		}
	}
	w.awaitVolumeGone(released)
	w.awaitVolumeGone(halfDeleted)
	w.eventually("the source of the clone is released", func() error {
		source, err := w.client.CoreV1().PersistentVolumeClaims(w.name).Get(t.Context(), "source", metav1.GetOptions{})
		if err == nil && slices.Contains(source.Finalizers, cloningFinalizer) {
			err = fmt.Errorf("its finalizers are %q", source.Finalizers)
		}
		return err
	})
	if volumes := w.driver.Volumes(); len(volumes) != 4 {
		t.Errorf("the driver has %v, want those of new, created, cloned and source", volumes)
	}
}

// newExchange is a world whose account has what external-provisioner had, and what
// docs/migrate.md adds to it.
func newExchange(t *testing.T) *world {
	t.Helper()
	w := build(t)
	w.driverName = exampleDriver
	w.account = account{namespace: exampleNamespace, name: "example-controller"}
	w.startDriver()
	w.createClass(w.name)
	w.createNamespace(w.name)
	w.createNamespace(exampleNamespace)
	page, err := os.ReadFile("../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	steps, err := walkthrough.Parse(string(page)).Section("## Migrate from external-provisioner")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, s := range steps {
		if s.File != "" {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, s.File), []byte(s.Content), 0o600))
		}
	}
	kustomization := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [journal.yaml]\n"
	err = errors.Join(err,
		os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600),
		shared.Apply(t.Context(), exampleDir))
	if err == nil {
		err = shared.Apply(t.Context(), dir)
	}
	if err == nil {
		w.kubeconfig, err = shared.ServiceAccountKubeconfig(t.Context(), w.account.namespace, w.account.name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// exchangedArgs are the flags of the container that has been external-provisioner's.
func (w *world) exchangedArgs() []string {
	w.Helper()
	objects, err := manifests.Objects(exampleDir)
	if err != nil {
		w.Fatal(err)
	}
	values := strings.NewReplacer("$(ADDRESS)", w.socket(), "$(NAMESPACE)", exampleNamespace)
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		var deployment appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment); err != nil {
			w.Fatal(err)
		}
		args := []string{"--kubeconfig=" + w.kubeconfig}
		for _, arg := range deployment.Spec.Template.Spec.Containers[1].Args {
			args = append(args, values.Replace(arg))
		}
		return args
	}
	w.Fatalf("%s has no Deployment", exampleDir)
	return nil
}

// leaseOfAnother is that of the external-provisioner that has ended.
func (w *world) leaseOfAnother() {
	w.Helper()
	now := metav1.NewMicroTime(time.Now())
	_, err := w.client.CoordinationV1().Leases(exampleNamespace).Create(w.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(exampleDriver, ".", "-")},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("1731918245127-8081-" + exampleDriver), LeaseDurationSeconds: new(int32(2)),
			AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32(7)),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// createdOnly makes a claim whose volume the driver has, but Kubernetes does not.
func (w *world) createdOnly(name string, change func(*corev1.PersistentVolumeClaim), source *csi.VolumeContentSource) (volume string) {
	w.Helper()
	volume = "pvc-" + string(w.createClaim(name, change).UID)
	w.createAtDriver(volume, source)
	return volume
}

func (w *world) createAtDriver(volume string, source *csi.VolumeContentSource) *csi.Volume {
	w.Helper()
	created, err := w.driver.CreateVolume(w.Context(), &csi.CreateVolumeRequest{
		Name: volume, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}, VolumeContentSource: source,
	})
	if err != nil {
		w.Fatal(err)
	}
	return created.GetVolume()
}

// boundVolume makes a PersistentVolume as external-provisioner does, for a claim.
func (w *world) boundVolume(claim string) *corev1.PersistentVolume {
	w.Helper()
	name := "pvc-of-" + claim
	volume, err := w.client.CoreV1().PersistentVolumes().Create(w.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:       name,
			Finalizers: []string{volumeFinalizer},
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                            exampleDriver,
				"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, Capacity: gibibyte(), StorageClassName: w.name,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Namespace: w.name, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: exampleDriver, VolumeHandle: w.createAtDriver(name, nil).GetVolumeId(),
				VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1731918245127-8081-" + exampleDriver},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return volume
}

// releasedVolume makes a volume whose claim was deleted. The driver has it, or has deleted it
// already.
func (w *world) releasedVolume(claim string, has bool) (name string) {
	w.Helper()
	volume := w.boundVolume(claim)
	w.createClaim(claim, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = volume.Name })
	w.awaitBound(claim)
	w.deleteClaim(claim)
	w.eventually("volume "+volume.Name+" is released", func() error {
		got, err := w.client.CoreV1().PersistentVolumes().Get(w.Context(), volume.Name, metav1.GetOptions{})
		if err == nil && got.Status.Phase != corev1.VolumeReleased {
			err = fmt.Errorf("it is %s", got.Status.Phase)
		}
		return err
	})
	if !has {
		if _, err := w.driver.DeleteVolume(w.Context(), &csi.DeleteVolumeRequest{VolumeId: volume.Spec.CSI.VolumeHandle}); err != nil {
			w.Fatal(err)
		}
	}
	return volume.Name
}
