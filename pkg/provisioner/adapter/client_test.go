package adapter

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// strictClient does nothing after the end of a context, as a real one does.
type strictClient struct{ kubernetes.Interface }

func (c strictClient) CoreV1() typedcorev1.CoreV1Interface {
	return strictCore{c.Interface.CoreV1()}
}

type strictCore struct{ typedcorev1.CoreV1Interface }

func (c strictCore) PersistentVolumes() typedcorev1.PersistentVolumeInterface {
	return strictVolumes{c.CoreV1Interface.PersistentVolumes()}
}

type strictVolumes struct {
	typedcorev1.PersistentVolumeInterface
}

func (v strictVolumes) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return v.PersistentVolumeInterface.Delete(ctx, name, options)
}

func (v strictVolumes) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*corev1.PersistentVolume, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return v.PersistentVolumeInterface.Patch(ctx, name, kind, data, options, subresources...)
}

// The library ends its context when it is asked to stop. A deletion under way is
// finished nevertheless.
func TestDeletionIsFinishedWhenStopping(t *testing.T) {
	volume := releasedVolume("pvc-1", func(volume *corev1.PersistentVolume) { volume.Finalizers = []string{plan.VolumeFinalizer} })
	client := strictClient{fake.NewClientset(volume)}
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().PersistentVolumes().Informer()
	volumes := drainingClient{Interface: client, base: t.Context(), deletions: newDeletions(informer.GetStore())}.CoreV1().PersistentVolumes()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := volumes.Patch(stopped, "pvc-1", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("Patch() = %v", err)
	}
	if err := volumes.Delete(stopped, "pvc-1", metav1.DeleteOptions{}); err != nil {
		t.Errorf("Delete() = %v", err)
	}
}
