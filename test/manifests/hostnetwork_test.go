package manifests_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestHostNetwork: a controller on the host's network shares the ports of the node with the
// node plugin, and serves none of its own on every address.
func TestHostNetwork(t *testing.T) {
	const (
		hostNetwork = "controller: {hostNetwork: true}"
		clusterID   = "cluster: {idFromConfigMap: names}"
	)
	for _, components := range [][]string{
		{hostNetwork},
		{"csi-driver-nfs"},
		{hostNetwork, clusterID, "capacity", "snapshots"},
		{"snapshots", "capacity", clusterID, "csi-driver-nfs"},
	} {
		t.Run(strings.Join(components, ","), func(t *testing.T) {
			objects := compose(t, components...)
			controller := decode[appsv1.Deployment](t, objects, "Deployment", "nfs-csi-controller").Spec
			pod := controller.Template.Spec
			if !pod.HostNetwork || controller.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
				t.Errorf("hostNetwork is %t, strategy %s", pod.HostNetwork, controller.Strategy.Type)
			}
			if slices.Contains(components, "csi-driver-nfs") && *controller.Replicas != 1 {
				t.Errorf("replicas are %d", *controller.Replicas)
			}
			checkPorts(t, pod, decode[appsv1.DaemonSet](t, objects, "DaemonSet", "nfs-csi-node").Spec.Template.Spec)
			for component, variable := range map[string]struct{ container, name string }{
				clusterID: {"nfsplugin", "CLUSTER_ID"}, "capacity": {"csi-provisioner", "POD_NAME"},
			} {
				if slices.Contains(components, component) && !hasEnv(container(t, pod, variable.container), variable.name) {
					t.Errorf("%s has no %s", variable.container, variable.name)
				}
			}
		})
	}
}

func hasEnv(c corev1.Container, name string) bool {
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
}

func checkPorts(t *testing.T, pods ...corev1.PodSpec) {
	t.Helper()
	taken := map[int32]string{}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			for _, port := range c.Ports {
				if other, ok := taken[port.ContainerPort]; ok {
					t.Errorf("containers %s and %s both listen on %d", other, c.Name, port.ContainerPort)
				}
				taken[port.ContainerPort] = c.Name
			}
			for _, arg := range c.Args {
				if endpoint, ok := strings.CutPrefix(arg, "--http-endpoint="); ok && (!strings.HasPrefix(endpoint, "[$(POD_IP)]:") || !hasEnv(c, "POD_IP")) {
					t.Errorf("%s serves at %s, and its env is %v", c.Name, endpoint, c.Env)
				}
			}
		}
	}
	if len(taken) != 3 {
		t.Errorf("ports are %v", taken)
	}
}
