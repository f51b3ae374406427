package nfsmount

import (
	"encoding/binary"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const xid = 0x6e667363

// words is a message in wire format.
func words(words ...uint32) []byte {
	var b []byte
	for _, w := range words {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

// aliveReply is what any server answers to a NULL call.
func aliveReply() []byte { return words(1<<31|24, xid, 1, 0, 0, 0, 0) }

// listening runs a server that handles each connection and returns its port.
func listening(t *testing.T, handle func(net.Conn)) (port string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go handle(conn)
		}
	}()
	_, port, err = net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// saying answers every call with the same bytes.
func saying(answer []byte) func(net.Conn) {
	return func(conn net.Conn) {
		buf := make([]byte, 512)
		for {
			if _, err := conn.Read(buf); err != nil {
				return
			}
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	}
}

func answering(t *testing.T) (port string) {
	t.Helper()
	return listening(t, saying(aliveReply()))
}

// The probe detects a broken server before the kernel talks to it.
func TestProbe(t *testing.T) {
	for name, tt := range map[string]struct {
		handle func(net.Conn)
		says   string // empty: alive
	}{
		"alive":            {saying(aliveReply()), ""},
		"other versions":   {saying(words(1<<31|32, xid, 1, 0, 0, 0, 2, 3, 3)), ""},
		"wants TLS":        {saying(words(1<<31|20, xid, 1, 1, 1, 5)), ""},
		"silent":           {func(net.Conn) {}, "to an NFSv4 NULL call (timeout 200ms): NFS server not reachable"},
		"closes":           {func(c net.Conn) { c.Close() }, "no answer from"},
		"resets":           {reset, "no answer from"},                                                             // while connecting or after,
		"speaks first":     {func(c net.Conn) { c.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n")) }, "not an RPC reply"}, //nolint:errcheck // a test server
		"speaks HTTP":      {saying([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")), "not an RPC reply"},
		"stops in between": {saying([]byte{0x80, 0, 0}), "no answer from"},
		"calls":            {saying(words(1<<31|40, xid, 0, 2, 100003, 4, 0, 0, 0, 0, 0)), "not an RPC reply"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := ParseOptions([]string{"port=" + listening(t, tt.handle)})
			if err != nil {
				t.Fatal(err)
			}
			p := prober{timeout: 200 * time.Millisecond}
			began := time.Now()
			addr, err := p.find(t.Context(), "127.0.0.1", o)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %s", took)
			}
			if tt.says == "" {
				if err != nil || addr.String() != "127.0.0.1" {
					t.Errorf("%s, %v", addr, err)
				}
				return
			}
			port, _ := o.value("port")
			if !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "127.0.0.1:"+port) {
				t.Errorf("got %v, want ErrUnreachable naming the address and saying %q", err, tt.says)
			}
		})
	}
}

func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// For version 3 the NFS service itself has to answer, not just the rpcbind with its port.
func TestProbeVersion3(t *testing.T) {
	registered := func(port string) func(net.Conn) {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		return saying(words(1<<31|28, xid, 1, 0, 0, 0, 0, uint32(n)))
	}
	silent := listening(t, func(net.Conn) {})
	for name, tt := range map[string]struct {
		rpcbind func(net.Conn)
		alive   bool
	}{
		"alive":          {registered(answering(t)), true},
		"not registered": {registered("0"), false},
		"nfsd is silent": {registered(silent), false},
		"all is silent":  {func(net.Conn) {}, false},
	} {
		p := prober{timeout: 200 * time.Millisecond, rpcbind: listening(t, tt.rpcbind)}
		_, err := p.find(t.Context(), "127.0.0.1", Options{version: version{major: 3}})
		if (err == nil) != tt.alive || err != nil && !errors.Is(err, volume.ErrUnreachable) {
			t.Errorf("%s: %v, want alive %v", name, err, tt.alive)
		}
	}
}
