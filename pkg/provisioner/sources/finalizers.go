package sources

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// The finalizers that protect sources.
const (
	CloningFinalizer  = "provisioner.storage.kubernetes.io/cloning-protection"
	SnapshotFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
)

func finalizerOf(origin plan.Origin) string {
	if origin.Kind == plan.SnapshotOrigin {
		return SnapshotFinalizer
	}
	return CloningFinalizer
}

// setFinalizer adds or removes the finalizer and leaves all others alone.
func (p *Protection) setFinalizer(ctx context.Context, origin plan.Origin, present bool) error {
	finalizer := finalizerOf(origin)
	for {
		object, err := p.get(ctx, origin)
		if apierrors.IsNotFound(err) && !present {
			return nil
		}
		if err != nil {
			return err
		}
		finalizers := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(name string) bool { return name == finalizer })
		if present == (len(finalizers) < len(object.GetFinalizers())) {
			return nil
		}
		if present {
			finalizers = append(finalizers, finalizer)
		}
		patch, err := cluster.MetadataPatch(object, "finalizers", finalizers)
		if err != nil {
			return err
		}
		if err = p.patch(ctx, origin, patch); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (p *Protection) get(ctx context.Context, origin plan.Origin) (metav1.Object, error) {
	if origin.Kind == plan.SnapshotOrigin {
		return p.config.Sources.snapshots(origin.Namespace).Get(ctx, origin.Name, metav1.GetOptions{})
	}
	return p.config.Cluster.Client.CoreV1().PersistentVolumeClaims(origin.Namespace).Get(ctx, origin.Name, metav1.GetOptions{})
}

func (p *Protection) patch(ctx context.Context, origin plan.Origin, patch []byte) (err error) {
	if origin.Kind == plan.SnapshotOrigin {
		_, err = p.config.Sources.snapshots(origin.Namespace).Patch(ctx, origin.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	_, err = p.config.Cluster.Client.CoreV1().PersistentVolumeClaims(origin.Namespace).
		Patch(ctx, origin.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
