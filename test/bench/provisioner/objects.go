package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	className = "bench"
	finalizer = "external-provisioner.volume.kubernetes.io/finalizer"
)

// capacity is not shared: a quantity caches its text.
func capacity() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

func (b *bench) createClass(ctx context.Context) error {
	class := &storagev1.StorageClass{
		ObjectMeta:   metav1.ObjectMeta{Name: className},
		Provisioner:  driverName,
		Parameters:   map[string]string{"server": "nfs.example", "share": "/export"},
		MountOptions: []string{"hard"},
	}
	_, err := b.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	return err
}

// createClaims makes n claims as kube-controller-manager leaves them for an
// external provisioner.
func (b *bench) createClaims(ctx context.Context, n int) error {
	return inParallel(ctx, n, func(ctx context.Context, i int) error {
		return b.createClaim(ctx, claimName(i))
	})
}

func claimName(i int) string { return fmt.Sprintf("data-%d", i) }

func (b *bench) createClaim(ctx context.Context, name string) error {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": driverName},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(className),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:        corev1.VolumeResourceRequirements{Requests: capacity()},
		},
	}
	_, err := b.client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
	return err
}

// bareVolume is what csi-provisioner would save, for another driver, so that it
// leaves it alone.
func bareVolume(i int) *corev1.PersistentVolume {
	name := fmt.Sprintf("pvc-%08d-2f61-4a87-9d33-5c1b7e0a4f52", i)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:       name,
			Finalizers: []string{finalizer},
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                            "bare.example",
				"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:                      capacity(),
			MountOptions:                  []string{"hard"},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              "bare",
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: claimName(i),
				UID: types.UID(name), ResourceVersion: "1000",
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "bare.example", VolumeHandle: "id-of-" + name,
				VolumeAttributes: map[string]string{
					"server": "nfs.example", "share": "/export",
					"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-1234-bare.example",
				},
			}},
		},
	}
}

// createBare is the floor of creation: one write a volume.
func (b *bench) createBare(ctx context.Context, n int) error {
	return inParallel(ctx, n, func(ctx context.Context, i int) error {
		_, err := b.client.CoreV1().PersistentVolumes().Create(ctx, bareVolume(i), metav1.CreateOptions{})
		return err
	})
}

// deleteBare is the floor of deletion: two writes a volume, as it has a finalizer.
func (b *bench) deleteBare(ctx context.Context, n int) error {
	volumes := b.client.CoreV1().PersistentVolumes()
	return inParallel(ctx, n, func(ctx context.Context, i int) error {
		name := bareVolume(i).Name
		if err := volumes.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		_, err := volumes.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// release does what kube-controller-manager does when claims are deleted, as far
// as csi-provisioner sees it: volumes are Released, claims are no longer to be
// provisioned.
func (b *bench) release(ctx context.Context) error {
	claims := b.client.CoreV1().PersistentVolumeClaims(namespace)
	volumes := b.client.CoreV1().PersistentVolumes()
	list, err := volumes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return inParallel(ctx, len(list.Items), func(ctx context.Context, i int) error {
		volume := &list.Items[i]
		patch := fmt.Appendf(nil, `{"spec":{"volumeName":%q}}`, volume.Name)
		if _, err := claims.Patch(ctx, volume.Spec.ClaimRef.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		volume.Status.Phase = corev1.VolumeReleased
		_, err := volumes.UpdateStatus(ctx, volume, metav1.UpdateOptions{})
		return err
	})
}
