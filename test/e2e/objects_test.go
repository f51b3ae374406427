package e2e

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	claimSize = "64Mi"
	image     = "busybox:1.36"
	mountPath = "/data"
	nfs42     = "nfsvers=4.2"
)

// createClass makes a StorageClass with the server and share of e and changes
// to its parameters. It goes when the test ends.
func (e *env) createClass(changes map[string]string) string {
	e.t.Helper()
	return e.createClassOf(driverName, changes)
}

func (e *env) createClassOf(driver string, changes map[string]string, more ...func(*storagev1.StorageClass)) string {
	e.t.Helper()
	parameters := map[string]string{"server": e.server, "share": e.export}
	for key, value := range changes {
		parameters[key] = value
	}
	expandable := true
	class := &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{GenerateName: e.namespace + "-"},
		Provisioner:          driver,
		Parameters:           parameters,
		MountOptions:         []string{nfs42},
		AllowVolumeExpansion: &expandable,
	}
	for _, change := range more {
		change(class)
	}
	class, err := e.client.StorageV1().StorageClasses().Create(e.t.Context(), class, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := e.client.StorageV1().StorageClasses().Delete(ctx, class.Name, metav1.DeleteOptions{}); err != nil {
			e.t.Errorf("delete class %s: %v", class.Name, err)
		}
	})
	return class.Name
}

func (e *env) createClaim(class string) *corev1.PersistentVolumeClaim {
	e.t.Helper()
	return e.createClaimFrom(class, nil)
}

// createClaimFrom makes a claim for a volume with the content of another, or of none.
func (e *env) createClaimFrom(class string, source *corev1.TypedLocalObjectReference) *corev1.PersistentVolumeClaim {
	e.t.Helper()
	return e.createClaimOf(class, resource.MustParse(claimSize), source)
}

func (e *env) createClaimOf(class string, size resource.Quantity, source *corev1.TypedLocalObjectReference) *corev1.PersistentVolumeClaim {
	e.t.Helper()
	return e.createClaimAs(metav1.ObjectMeta{GenerateName: "claim-"}, class, size, source)
}

func (e *env) createClaimAs(meta metav1.ObjectMeta, class string, size resource.Quantity, source *corev1.TypedLocalObjectReference) *corev1.PersistentVolumeClaim {
	e.t.Helper()
	claim, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Create(e.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: meta,
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			DataSource:       source,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: size},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return claim
}

// volumeName is the name of the claim's volume and of its directory; it is
// known before either exists.
func volumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

func (e *env) waitBound(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	e.t.Helper()
	e.eventually("claim "+claim.Name+" is Bound", func(ctx context.Context) error {
		got, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err == nil && got.Status.Phase != corev1.ClaimBound {
			err = fmt.Errorf("claim is %s", got.Status.Phase)
		}
		return err
	})
	volume, err := e.client.CoreV1().PersistentVolumes().Get(e.t.Context(), volumeName(claim), metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return volume
}

// volumesOf gives the names of all the volumes that were made for the claims.
func (e *env) volumesOf(class string) []string {
	e.t.Helper()
	volumes, err := e.client.CoreV1().PersistentVolumes().List(e.t.Context(), metav1.ListOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	var names []string
	for _, volume := range volumes.Items {
		if volume.Spec.StorageClassName == class {
			names = append(names, volume.Name)
		}
	}
	return sorted(names)
}

// deleteClaim deletes the claim and waits until its volume is gone as well.
func (e *env) deleteClaim(claim *corev1.PersistentVolumeClaim) {
	e.t.Helper()
	err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Delete(e.t.Context(), claim.Name, metav1.DeleteOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	e.eventually("claim "+claim.Name+" and its volume are gone", func(ctx context.Context) error {
		_, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err := isGone("claim", err); err != nil {
			return err
		}
		_, err = e.client.CoreV1().PersistentVolumes().Get(ctx, volumeName(claim), metav1.GetOptions{})
		return isGone("volume", err)
	})
}

// isGone turns the error of a Get into what is still missing for it to be gone.
func isGone(kind string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("the %s is still there", kind)
	case apierrors.IsNotFound(err):
		return nil
	default:
		return err
	}
}

// startPod runs script in a pod that has the claim at mountPath.
func (e *env) startPod(claim *corev1.PersistentVolumeClaim, script string) *corev1.Pod {
	e.t.Helper()
	return e.startPodWith(corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
	}, script)
}

func (e *env) startPodWith(data corev1.VolumeSource, script string, changes ...func(*corev1.PodSpec)) *corev1.Pod {
	e.t.Helper()
	grace := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name:            "main",
				Image:           image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Command:         []string{"sh", "-c", script},
				VolumeMounts:    []corev1.VolumeMount{{Name: "data", MountPath: mountPath}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: data}},
		},
	}
	for _, change := range changes {
		change(&pod.Spec)
	}
	pod, err := e.client.CoreV1().Pods(e.namespace).Create(e.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return pod
}

func (e *env) waitPhase(pod *corev1.Pod, want corev1.PodPhase) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("pod %s is %s", pod.Name, want), func(ctx context.Context) error {
		got, err := e.client.CoreV1().Pods(e.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase := got.Status.Phase; phase != want {
			return fmt.Errorf("pod is %s since %v", phase, time.Since(got.CreationTimestamp.Time).Round(time.Second))
		}
		return nil
	})
}

// finishPod runs script in a pod that has the claim, waits until it has succeeded and
// deletes it.
func (e *env) finishPod(claim *corev1.PersistentVolumeClaim, script string) {
	e.t.Helper()
	pod := e.startPod(claim, script)
	e.waitPhase(pod, corev1.PodSucceeded)
	e.deletePods(pod)
}

func (e *env) deletePods(pods ...*corev1.Pod) {
	e.t.Helper()
	for _, pod := range pods {
		if err := e.client.CoreV1().Pods(e.namespace).Delete(e.t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			e.t.Fatal(err)
		}
	}
	for _, pod := range pods {
		e.eventually("pod "+pod.Name+" is gone", func(ctx context.Context) error {
			_, err := e.client.CoreV1().Pods(e.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			return isGone("pod", err)
		})
	}
}
