package adapter

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// drainingClient lets the library remove a PersistentVolume whose volume it has
// deleted for as long as base lives, and keeps it from saving PersistentVolumes,
// which Volumes.Provision has saved.
type drainingClient struct {
	kubernetes.Interface
	base      context.Context
	deletions *deletions
}

func (c drainingClient) CoreV1() typedcorev1.CoreV1Interface {
	return drainingCore{c.Interface.CoreV1(), c}
}

type drainingCore struct {
	typedcorev1.CoreV1Interface
	client drainingClient
}

func (c drainingCore) PersistentVolumes() typedcorev1.PersistentVolumeInterface {
	return drainingVolumes{c.CoreV1Interface.PersistentVolumes(), c.client}
}

type drainingVolumes struct {
	typedcorev1.PersistentVolumeInterface
	client drainingClient
}

// Create does nothing.
func (v drainingVolumes) Create(_ context.Context, volume *corev1.PersistentVolume, _ metav1.CreateOptions) (*corev1.PersistentVolume, error) {
	return volume, nil
}

func (v drainingVolumes) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	ctx, cancel := detach(ctx, v.client.base)
	defer cancel()
	return v.PersistentVolumeInterface.Delete(ctx, name, options)
}

func (v drainingVolumes) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*corev1.PersistentVolume, error) {
	ctx, cancel := detach(ctx, v.client.base)
	defer cancel()
	volume, err := v.PersistentVolumeInterface.Patch(ctx, name, kind, data, options, subresources...)
	if err == nil {
		v.client.deletions.patched(volume)
	}
	return volume, err
}
