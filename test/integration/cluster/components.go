package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// What binds volumes to claims and protects both while they are in use. Nothing
// here needs pods, nodes or namespaces to be cleaned up.
func controllers() string {
	return strings.Join([]string{
		"persistentvolume-binder-controller",
		"persistentvolume-protection-controller",
		"persistentvolumeclaim-protection-controller",
	}, ",")
}

func etcdArgs(dir, client, peer string) []string {
	return []string{
		"--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--unsafe-no-fsync",
	}
}

func apiserverArgs(dir, etcd string, port int) []string {
	return []string{
		"--etcd-servers=" + etcd,
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		"--endpoint-reconciler-type=none",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + filepath.Join(dir, "certs"),
		"--token-auth-file=" + filepath.Join(dir, "tokens.csv"),
		"--authorization-mode=RBAC",
		"--allow-privileged",
		// Alpha; without it the API server drops the namespace of a data source.
		"--feature-gates=CrossNamespaceVolumeDataSource=true",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + filepath.Join(dir, "service-account.key"),
		"--service-account-signing-key-file=" + filepath.Join(dir, "service-account.key"),
	}
}

func controllerManagerArgs(kubeconfig string, port int) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback,
		fmt.Sprintf("--secure-port=%d", port),
		"--leader-elect=false",
		// By default it would bind a few claims per second.
		"--kube-api-qps=1000", "--kube-api-burst=1000",
		// Of what failed while the API server was away.
		"--pvclaimbinder-sync-period=2s",
		"--controllers=" + controllers(),
	}
}

func (c *Cluster) writeSecrets() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(filepath.Join(c.Dir, "service-account.key"), encoded, 0o600); err != nil {
		return err
	}
	tokens := adminToken + ",admin,admin,system:masters\n"
	return os.WriteFile(filepath.Join(c.Dir, "tokens.csv"), []byte(tokens), 0o600)
}

// Kubeconfig writes a file for whoever has the token and returns its path.
func (c *Cluster) Kubeconfig(name, token string) (string, error) {
	path := filepath.Join(c.Dir, name+".kubeconfig")
	config := api.Config{
		CurrentContext: name,
		Clusters:       map[string]*api.Cluster{name: {Server: c.server, CertificateAuthority: c.caFile}},
		AuthInfos:      map[string]*api.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
	}
	// Tests that run at the same time write the same file, and read it meanwhile.
	part, err := os.CreateTemp(c.Dir, name+"-*.part")
	if err != nil {
		return "", err
	}
	if err := errors.Join(part.Close(), clientcmd.WriteToFile(config, part.Name())); err != nil {
		return "", err
	}
	return path, os.Rename(part.Name(), path)
}
