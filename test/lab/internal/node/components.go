package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// spec is one component and its arguments.
type spec struct {
	name string
	args []string
}

// specs are the components in the order of their start: the API server and what
// it needs, and those that give up if it is not ready soon after they start.
func specs() (base, clients []spec) {
	pki := func(name string) string { return filepath.Join(stateDir, name) }
	const etcd = "http://127.0.0.1:2379"
	base = []spec{
		{"etcd", []string{
			"--name=lab", "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=lab=http://127.0.0.1:2380",
		}},
		{"containerd", []string{"--config=" + pki("containerd.toml"), "--log-level=info"}},
		{"kube-apiserver", []string{
			"--etcd-servers=" + etcd,
			"--advertise-address=" + Address, "--secure-port=443", "--service-cluster-ip-range=" + serviceRange,
			"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
			"--client-ca-file=" + pki("ca.crt"),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + pki("service-accounts.key"), "--service-account-signing-key-file=" + pki("service-accounts.key"),
			"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"), "--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
			"--kubelet-preferred-address-types=InternalIP",
		}},
	}
	clients = []spec{
		{"kube-controller-manager", []string{
			"--kubeconfig=" + pki("kube-controller-manager.kubeconfig"), "--leader-elect=false", "--use-service-account-credentials",
			"--root-ca-file=" + pki("ca.crt"), "--service-account-private-key-file=" + pki("service-accounts.key"),
		}},
		{"kube-scheduler", []string{"--kubeconfig=" + pki("kube-scheduler.kubeconfig"), "--leader-elect=false"}},
		{"kubelet", []string{
			"--kubeconfig=" + pki("kubelet.kubeconfig"), "--config=" + pki("kubelet.yaml"),
			"--hostname-override=" + Name, "--node-ip=" + Address,
		}},
	}
	return base, clients
}

// component is a running process.
type component struct {
	name    string
	log     string
	process *os.Process
	done    chan struct{} // closed when the process has ended
	err     error         // why, once done is closed
}

func (s spec) start(logDir string) (*component, error) {
	log, err := os.Create(filepath.Join(logDir, s.name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(s.name, s.args...)
	cmd.Stdout, cmd.Stderr = log, log
	// Signals are dear in the guest, and it has one processor to share anyway.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	c := &component{name: s.name, log: log.Name(), process: cmd.Process, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = cmd.Wait()
	}()
	return c, nil
}

func (c *component) kill() {
	_ = c.process.Kill()
	<-c.done
}

// ended tells whether the process is gone, and says so with its log.
func (c *component) ended() error {
	select {
	case <-c.done:
		return fmt.Errorf("%s ended: %w; its log is %s", c.name, c.err, c.log)
	default:
		return nil
	}
}
