package node

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// identity is somebody whom the API server knows by a client certificate.
type identity struct {
	file  string // also names the kubeconfig
	user  string
	group string
}

var identities = []identity{
	{"admin", "lab-admin", "system:masters"},
	{"kube-controller-manager", "system:kube-controller-manager", ""},
	{"kube-scheduler", "system:kube-scheduler", ""},
	{"kubelet", "system:node:" + Name, "system:nodes"},
	{"apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"},
}

// credentials are the administrator's, for our own requests.
type credentials struct {
	roots  *x509.CertPool
	client tls.Certificate
}

// authority signs the cluster's certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// issue writes the cluster's authority, certificates and kubeconfigs to dir.
func issue(dir string) (*credentials, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key}
	template := a.template("lab-ca", "")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	a.cert = template
	der, err := a.sign("ca", template, key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}

	server := a.template("kube-apiserver", "")
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	server.IPAddresses = []net.IP{net.ParseIP(Address), net.ParseIP(serviceAddress), net.IPv4(127, 0, 0, 1)}
	if err := a.issueOne("apiserver", server); err != nil {
		return nil, err
	}
	// The key that signs service account tokens; its certificate goes unused.
	if err := a.issueOne("service-accounts", a.template("service-accounts", "")); err != nil {
		return nil, err
	}
	for _, id := range identities {
		client := a.template(id.user, id.group)
		client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if err := a.issueOne(id.file, client); err != nil {
			return nil, err
		}
		if err := writeKubeconfig(dir, id.file); err != nil {
			return nil, err
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	client, err := tls.LoadX509KeyPair(a.path("admin", "crt"), a.path("admin", "key"))
	return &credentials{roots: pool, client: client}, err
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func (a *authority) path(name, ext string) string { return filepath.Join(a.dir, name+"."+ext) }

func (a *authority) template(commonName, organization string) *x509.Certificate {
	subject := pkix.Name{CommonName: commonName}
	if organization != "" {
		subject.Organization = []string{organization}
	}
	return &x509.Certificate{
		Subject:      subject,
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour), // a guest lives minutes
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func (a *authority) issueOne(name string, template *x509.Certificate) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	_, err = a.sign(name, template, key)
	return err
}

// sign writes NAME.crt and NAME.key.
func (a *authority) sign(name string, template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", name, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := writePEM(a.path(name, "crt"), "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return der, writePEM(a.path(name, "key"), "EC PRIVATE KEY", secret)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
