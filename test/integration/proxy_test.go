package integration

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// proxy is between a program and the API server, and can cut what goes through it.
type proxy struct {
	kubeconfig string
	server     string

	mu     sync.Mutex
	conns  map[net.Conn]bool
	number int // of connections cut
}

// proxyAPIServer starts one, with a kubeconfig of the world's own.
func (w *world) proxyAPIServer() *proxy {
	w.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	direct, err := os.ReadFile(w.kubeconfig)
	if err != nil {
		w.Fatal(err)
	}
	url := shared.Config("").Host
	p := &proxy{
		kubeconfig: filepath.Join(w.dir, "proxy.kubeconfig"),
		server:     strings.TrimPrefix(url, "https://"),
		conns:      map[net.Conn]bool{},
	}
	through := strings.ReplaceAll(string(direct), url, "https://"+listener.Addr().String())
	if err := os.WriteFile(p.kubeconfig, []byte(through), 0o600); err != nil {
		w.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.forward(conn)
		}
	}()
	w.Cleanup(func() {
		listener.Close()
		p.cut()
	})
	return p
}

func (p *proxy) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client] = true
	p.mu.Unlock()
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	_, _ = io.Copy(client, server)
	p.mu.Lock()
	delete(p.conns, client)
	p.mu.Unlock()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		conn.Close()
		p.number++
	}
}

func (p *proxy) wasCut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.number
}
