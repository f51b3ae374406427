package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

func TestIssuedCertificates(t *testing.T) {
	dir := t.TempDir()
	creds, err := issue(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range identities {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, id.file+".crt"), filepath.Join(dir, id.file+".key"))
		if err != nil {
			t.Fatal(err)
		}
		opts := x509.VerifyOptions{Roots: creds.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		if _, err := pair.Leaf.Verify(opts); err != nil {
			t.Errorf("%s: %v", id.file, err)
		}
		if got := pair.Leaf.Subject.CommonName; got != id.user {
			t.Errorf("%s is %q, want %q", id.file, got, id.user)
		}
		config, err := clientcmd.LoadFromFile(filepath.Join(dir, id.file+".kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		if err := clientcmd.ConfirmUsable(*config, ""); err != nil {
			t.Errorf("kubeconfig of %s: %v", id.file, err)
		}
	}
	server, err := tls.LoadX509KeyPair(filepath.Join(dir, "apiserver.crt"), filepath.Join(dir, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{Address, serviceAddress, "kubernetes.default.svc"} {
		if _, err := server.Leaf.Verify(x509.VerifyOptions{Roots: creds.roots, DNSName: host}); err != nil {
			t.Errorf("API server as %s: %v", host, err)
		}
	}
}

func TestConfigsParse(t *testing.T) {
	var kubelet map[string]any
	if err := yaml.UnmarshalStrict([]byte(kubeletConfig), &kubelet); err != nil {
		t.Error(err)
	}
	if !json.Valid([]byte(cniConfig)) {
		t.Error("the CNI configuration is no JSON")
	}
}

func TestEndedComponentIsNamedWithItsLog(t *testing.T) {
	dir := t.TempDir()
	c, err := spec{"false", nil}.start(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{components: []*component{c}}
	err = n.poll(t.Context(), "the moon", func(context.Context) error { return os.ErrNotExist })
	if err == nil || !strings.Contains(err.Error(), "the moon") || !strings.Contains(err.Error(), filepath.Join(dir, "false.log")) {
		t.Errorf("got %v", err)
	}
}

func TestNodeReady(t *testing.T) {
	for body, want := range map[string]string{
		`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`:                                       "",
		`{"status":{"conditions":[{"type":"Ready","status":"False","message":"network is not ready"}]}}`:     "network is not ready",
		`{"status":{"conditions":[{"type":"MemoryPressure","status":"False"}]}}`:                             "no Ready condition",
		`{"status":{"conditions":[{"type":"MemoryPressure","status":"True"},{"type":"Ready","status":""}]}}`: "not Ready",
	} {
		err := nodeReady(t.Context(), answering(body))
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
}

// answering is a client that gets the same answer to everything.
func answering(body string) *http.Client {
	return &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		r := httptest.NewRecorder()
		_, _ = io.WriteString(r, body)
		return r.Result(), nil
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
