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
	const hostResolver = "controller: {dnsPolicy: Default}\nnode: {dnsPolicy: Default}"
	for _, tt := range []struct {
		components []string
		want       corev1.DNSPolicy
	}{
		{nil, corev1.DNSClusterFirstWithHostNet},
		{[]string{"csi-driver-nfs"}, corev1.DNSClusterFirstWithHostNet},
		{[]string{hostResolver}, corev1.DNSDefault},
		{[]string{"csi-driver-nfs", hostResolver}, corev1.DNSDefault},
	} {
		t.Run(strings.Join(tt.components, ","), func(t *testing.T) {
			objects := compose(t, tt.components...)
			controller := decode[appsv1.Deployment](t, objects, "Deployment", "nfs-csi-controller").Spec.Template.Spec
			node := decode[appsv1.DaemonSet](t, objects, "DaemonSet", "nfs-csi-node").Spec.Template.Spec
			if controller.DNSPolicy != tt.want || node.DNSPolicy != tt.want {
				t.Errorf("dnsPolicy is %s in the controller and %s on the node, want %s", controller.DNSPolicy, node.DNSPolicy, tt.want)
			}
		})
	}
}
