package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCapacity: the scheduler starts no pod whose claim is larger than what is
// free on the export, and the others where they fit.
func TestCapacity(t *testing.T) {
	e := newEnv(t)
	class := e.createClassOf(driverName, nil, func(class *storagev1.StorageClass) {
		mode := storagev1.VolumeBindingWaitForFirstConsumer
		class.VolumeBindingMode = &mode
	})
	free := e.waitCapacity(class)

	size := free.DeepCopy()
	size.Add(resource.MustParse("1Gi"))
	large := e.createClaimOf(class, size, nil)
	waiting := e.startPod(large, "true")
	e.waitUnschedulable(waiting, "did not have enough free storage")

	fitting := e.createClaim(class)
	pod := e.startPod(fitting, "true")
	e.waitPhase(pod, corev1.PodSucceeded)
	volume := e.waitBound(fitting)
	e.expectOnExport(volume.Name)
	got, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Get(t.Context(), large.Name, metav1.GetOptions{})
	if err != nil || got.Status.Phase != corev1.ClaimPending || got.Annotations["volume.kubernetes.io/selected-node"] != "" {
		t.Errorf("the claim that does not fit is %+v, %v", got, err)
	}
	e.deletePods(waiting, pod)
	e.deleteClaim(fitting)
	e.expectOnExport()
}

// waitCapacity is what the driver has published for the class.
func (e *env) waitCapacity(class string) (free resource.Quantity) {
	e.t.Helper()
	e.eventually("the capacity of "+class+" is published", func(ctx context.Context) error {
		list, err := e.client.StorageV1().CSIStorageCapacities(driverNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, published := range list.Items {
			if published.StorageClassName == class && published.Capacity != nil {
				free = *published.Capacity
				if owners := published.OwnerReferences; len(owners) != 1 || owners[0].Name != controllerName {
					e.t.Errorf("%s belongs to %v", published.Name, owners)
				}
				return nil
			}
		}
		return fmt.Errorf("there are %d others", len(list.Items))
	})
	return free
}

func (e *env) waitUnschedulable(pod *corev1.Pod, why string) {
	e.t.Helper()
	e.eventually("pod "+pod.Name+" cannot be scheduled", func(ctx context.Context) error {
		got, err := e.client.CoreV1().Pods(e.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range got.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && strings.Contains(condition.Message, why) {
				return nil
			}
		}
		return fmt.Errorf("it is %s, %v", got.Status.Phase, got.Status.Conditions)
	})
}
