package integration

import (
	"bufio"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// gate is the API server as a program sees it that learns some things late, and
// others not at all.
type gate struct {
	kubeconfig string

	mu      sync.Mutex
	changed *sync.Cond
	held    string // events with this text wait, and all after them
	failing string // requests for all objects of this resource fail
	failed  int    // how many did
}

// gateAPIServer starts one, with a kubeconfig of the world's own.
func (w *world) gateAPIServer() *gate {
	w.Helper()
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(shared.Config("")))
	if err != nil {
		w.Fatal(err)
	}
	upstream, err := url.Parse(shared.Config("").Host)
	if err != nil {
		w.Fatal(err)
	}
	g := &gate{kubeconfig: filepath.Join(w.dir, "gate.kubeconfig")}
	g.changed = sync.NewCond(&g.mu)
	forward := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: g.holdEvents,
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if g.fails(request) {
			http.Error(response, "made to fail", http.StatusInternalServerError)
			return
		}
		forward.ServeHTTP(response, request)
	}))
	w.Cleanup(func() {
		g.hold("")
		server.CloseClientConnections()
		server.Close()
	})
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	if err != nil {
		w.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority = server.URL, ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	if err := clientcmd.WriteToFile(*config, g.kubeconfig); err != nil {
		w.Fatal(err)
	}
	return g
}

// hold keeps events with a text back, from the next one on, and lets go those with
// the text before; with none it lets all go.
func (g *gate) hold(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = text
	g.changed.Broadcast()
}

// fail makes requests for all objects of a resource fail; of none with "".
func (g *gate) fail(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failing, g.failed = resource, 0
}

func (g *gate) fails(request *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	fails := g.failing != "" && request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/"+g.failing)
	if fails {
		g.failed++
	}
	return fails
}

// awaitFailed waits until that many requests have failed.
func (w *world) awaitFailed(g *gate, count int) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d lists have failed", count), func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.failed < count {
			return fmt.Errorf("%d have", g.failed)
		}
		return nil
	})
}

func (g *gate) holdEvents(response *http.Response) error {
	if strings.Contains(response.Header.Get("Content-Type"), "protobuf;stream=watch") {
		response.Body = &events{gate: g, Closer: response.Body, from: bufio.NewReader(response.Body)}
	}
	return nil
}

// pass waits until an event may go on.
func (g *gate) pass(event []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.held != "" && strings.Contains(string(event), g.held) {
		g.changed.Wait()
	}
}

// events of a watch in protobuf, each after its length in four bytes.
type events struct {
	io.Closer

	gate *gate
	from *bufio.Reader
	left []byte // of an event that may go on
}

func (e *events) Read(p []byte) (int, error) {
	if len(e.left) == 0 {
		head := make([]byte, 4)
		if _, err := io.ReadFull(e.from, head); err != nil {
			return 0, err
		}
		event := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(e.from, event); err != nil {
			return 0, err
		}
		e.gate.pass(event)
		e.left = slices.Concat(head, event)
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	return n, nil
}
