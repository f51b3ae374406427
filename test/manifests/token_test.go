package manifests_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestTokenIsForSidecarsOnly: nfsplugin does not use the Kubernetes API and runs with
// CAP_SYS_ADMIN or privileged, so it must not have the credentials of the sidecars.
func TestTokenIsForSidecarsOnly(t *testing.T) {
	const path = "/var/run/secrets/kubernetes.io/serviceaccount"
	objects := compose(t, "snapshots", "csi-driver-nfs")
	controller := decode[appsv1.Deployment](t, objects, "Deployment", "nfs-csi-controller").Spec.Template.Spec
	node := decode[appsv1.DaemonSet](t, objects, "DaemonSet", "nfs-csi-node").Spec.Template.Spec
	for name, pod := range map[string]corev1.PodSpec{"controller": controller, "node": node} {
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s: every container has the token", name)
		}
	}
	if slices.ContainsFunc(node.Volumes, isToken) {
		t.Errorf("the node plugin has a token: %v", node.Volumes)
	}
	token := slices.IndexFunc(controller.Volumes, isToken)
	if token < 0 {
		t.Fatalf("the controller has no token: %v", controller.Volumes)
	}
	for _, c := range controller.Containers {
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == controller.Volumes[token].Name && m.MountPath == path && m.ReadOnly
		})
		if wants := c.Name != "nfsplugin"; mounted != wants {
			t.Errorf("container %s has the token: %t, want %t", c.Name, mounted, wants)
		}
	}
}

func isToken(v corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
}
