package sources

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// setFinalizer adds or removes the finalizer and leaves all others alone. It starts
// again whenever somebody else has changed the object meanwhile.
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
		object.SetFinalizers(finalizers)
		// A removal by somebody else is found by the next get.
		if err = p.update(ctx, object); !apierrors.IsConflict(err) && (present || !apierrors.IsNotFound(err)) {
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

// update writes an object of get. It does not patch: the ClusterRole of
// external-provisioner has no such permission.
func (p *Protection) update(ctx context.Context, object metav1.Object) (err error) {
	switch object := object.(type) {
	case *unstructured.Unstructured:
		_, err = p.config.Sources.snapshots(object.GetNamespace()).Update(ctx, object, metav1.UpdateOptions{})
	case *corev1.PersistentVolumeClaim:
		_, err = p.config.Cluster.Client.CoreV1().PersistentVolumeClaims(object.Namespace).Update(ctx, object, metav1.UpdateOptions{})
	}
	return err
}
