package node

import (
	"fmt"
	"os"
	"path/filepath"
)

// PauseImage is the sandbox of every pod; the lab imports it.
const PauseImage = "localhost/lab/pause:1"

const kubeconfig = `apiVersion: v1
kind: Config
current-context: lab
clusters:
- name: lab
  cluster:
    server: https://%[1]s:443
    certificate-authority: %[2]s/ca.crt
users:
- name: %[3]s
  user:
    client-certificate: %[2]s/%[3]s.crt
    client-key: %[2]s/%[3]s.key
contexts:
- name: lab
  context:
    cluster: lab
    user: %[3]s
`

func writeKubeconfig(dir, name string) error {
	return os.WriteFile(filepath.Join(dir, name+".kubeconfig"), fmt.Appendf(nil, kubeconfig, Address, dir, name), 0o600)
}

var kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: ` + stateDir + `/ca.crt}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
clusterDNS: ["` + Address + `"] # nothing listens there: names fail at once
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 0%}
failSwapOn: false
localStorageCapacityIsolation: false
maxPods: 60
nodeStatusUpdateFrequency: 2s
resolvConf: /etc/resolv.conf
serializeImagePulls: false
volumePluginDir: /var/lib/kubelet/volume-plugins
`

var containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + PauseImage + `"
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "` + stateDir + `/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`

// A pod's traffic is routed, not translated: the guest has nowhere else to go.
var cniConfig = `{"cniVersion": "1.0.0", "name": "lab", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/var/lib/cni", "ranges": [[{"subnet": "` + podRange + `"}]],
   "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

func writeConfigs() error {
	for path, content := range map[string]string{
		stateDir + "/kubelet.yaml":     kubeletConfig,
		stateDir + "/containerd.toml":  containerdConfig,
		stateDir + "/cni/lab.conflist": cniConfig,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}
