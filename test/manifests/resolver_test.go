package manifests_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestResolver: ClusterFirst on the host's network is the node's resolver, which does not
// know Services.
func TestResolver(t *testing.T) {
	for _, tt := range []struct {
		components []string
		want       corev1.DNSPolicy
	}{
		{nil, corev1.DNSClusterFirstWithHostNet},
		{[]string{"csi-driver-nfs"}, corev1.DNSClusterFirstWithHostNet},
		{[]string{"host-resolver"}, corev1.DNSDefault},
		{[]string{"csi-driver-nfs", "host-resolver"}, corev1.DNSDefault},
		{[]string{"host-resolver", "csi-driver-nfs"}, corev1.DNSDefault},
	} {
		t.Run(strings.Join(tt.components, ","), func(t *testing.T) {
			dir := compose(t, tt.components...)
			controller := decodeOf[appsv1.Deployment](t, dir, "Deployment", "nfs-csi-controller").Spec.Template.Spec
			node := decodeOf[appsv1.DaemonSet](t, dir, "DaemonSet", "nfs-csi-node").Spec.Template.Spec
			if controller.DNSPolicy != tt.want || node.DNSPolicy != tt.want {
				t.Errorf("dnsPolicy is %s in the controller and %s on the node, want %s", controller.DNSPolicy, node.DNSPolicy, tt.want)
			}
		})
	}
}
