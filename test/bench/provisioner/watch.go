package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// watchBuffer is more than the events of any group.
const watchBuffer = 1 << 17

// volumeWatch sees the volumes of the benched driver come and go.
type volumeWatch struct {
	watch  watch.Interface
	events chan watch.Event
}

func (b *bench) watchVolumes(ctx context.Context) (*volumeWatch, error) {
	volumes := b.client.CoreV1().PersistentVolumes()
	list, err := volumes.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	// The API server ends the watch of whoever does not keep up.
	from, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: volumes.Watch})
	if err != nil {
		return nil, err
	}
	w := &volumeWatch{watch: from, events: make(chan watch.Event, watchBuffer)}
	go func() {
		defer close(w.events)
		for event := range from.ResultChan() {
			w.events <- event
		}
	}()
	return w, nil
}

// stop ends the watch; nothing is left behind.
func (w *volumeWatch) stop() {
	w.watch.Stop()
	for range w.events {
		// Until it is closed.
		continue
	}
}

// await waits until the condition has held for n volumes, each counted once.
func (w *volumeWatch) await(ctx context.Context, n int, condition func(watch.Event, *corev1.PersistentVolume) bool) error {
	counted := map[string]bool{}
	for len(counted) < n {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d volumes: %w", len(counted), n, ctx.Err())
		case event, open := <-w.events:
			if !open {
				return errors.New("the watch of volumes has ended")
			}
			if event.Type == watch.Error {
				return apierrors.FromObject(event.Object)
			}
			volume, ok := event.Object.(*corev1.PersistentVolume)
			if ok && volume.Spec.StorageClassName == className && condition(event, volume) {
				counted[volume.Name] = true
			}
		}
	}
	return nil
}

func saved(event watch.Event, _ *corev1.PersistentVolume) bool { return event.Type == watch.Added }

// cleaned: csi-provisioner has nothing left to do for it. What else holds on to
// it is removed by kube-controller-manager.
func cleaned(event watch.Event, volume *corev1.PersistentVolume) bool {
	return event.Type == watch.Deleted ||
		volume.DeletionTimestamp != nil && !slices.Contains(volume.Finalizers, finalizer)
}

func bound(_ watch.Event, volume *corev1.PersistentVolume) bool {
	return volume.Status.Phase == corev1.VolumeBound
}

func gone(event watch.Event, _ *corev1.PersistentVolume) bool { return event.Type == watch.Deleted }
