package nfs

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// goingServer is the lab's server under an address of its own, which can be
// taken away, so that the server is dead for those who use this address and
// for nobody else.
type goingServer struct {
	link netlink.Link
	addr *netlink.Addr
}

const goingAddress = "10.99.99.1"

// newGoingServer makes the address come back in the end, for good: the kernel
// has to tidy up what was done through it.
func newGoingServer(t *testing.T) *goingServer {
	t.Helper()
	link, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(goingAddress + "/32")
	if err != nil {
		t.Fatal(err)
	}
	s := &goingServer{link, addr}
	s.come(t)
	t.Cleanup(func() { s.come(t) })
	return s
}

func (s *goingServer) come(t *testing.T) {
	t.Helper()
	if err := netlink.AddrReplace(s.link, s.addr); err != nil {
		t.Fatal(err)
	}
}

func (s *goingServer) goAway(t *testing.T) {
	t.Helper()
	if err := netlink.AddrDel(s.link, s.addr); err != nil {
		t.Fatal(err)
	}
}

func TestUnmountOfADeadServer(t *testing.T) {
	export := exports(t)["ext4"]
	// The other server is, in the lab, the same one, which clients of one minor
	// version find out and then share the dead connection: it is spoken to in one
	// that no other test of a dead server uses.
	for version, otherVersion := range map[string]string{"vers=4.2": "vers=3", "vers=3": "vers=4.1"} {
		t.Run(version, func(t *testing.T) { unmountDead(t, export, version, otherVersion) })
	}
}

func unmountDead(t *testing.T, export volume.Export, version, otherVersion string) {
	t.Helper()
	server := newGoingServer(t)
	k, sub := kernel(t), serverDir(t, export)
	dead := export
	dead.Server = goingAddress
	at, other := target(t, k), target(t, k)
	if err := k.Mount(t.Context(), nfsmount.Mount{Export: dead, SubDir: sub, Target: at, Options: options(t, version)}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "f"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	server.goAway(t)

	var entry nfsmount.Entry
	within(t, time.Second, "a look at the mount table", func() {
		e, mounted, err := k.MountAt(t.Context(), at)
		if err != nil || !mounted || e.Source != dead.Source(sub) {
			t.Errorf("in the table: %+v, %v, %v", e, mounted, err)
		}
		entry = e
	})
	within(t, 4*time.Second, "the usage", func() {
		if _, err := k.Usage(t.Context(), entry); !errors.Is(err, volume.ErrUnreachable) {
			t.Errorf("usage: %v, want ErrUnreachable", err)
		}
	})
	within(t, 2*time.Second, "a mount of another server", func() {
		if err := k.Mount(t.Context(), nfsmount.Mount{Export: export, Target: other, Options: options(t, otherVersion)}); err != nil {
			t.Error(err)
		}
	})
	threads := taskCount(t)
	within(t, 5*time.Second, "the unmount", func() {
		if err := k.Unmount(t.Context(), at); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	if e := mountAt(t, at); e != nil {
		t.Errorf("still mounted: %+v", e)
	}
	for range 5 {
		if err := k.Unmount(t.Context(), at); err != nil {
			t.Errorf("unmount again: %v", err)
		}
	}
	if grown := taskCount(t) - threads; grown > 2 {
		t.Errorf("%d more threads after retries", grown)
	}
}

func TestDeadServerComesBack(t *testing.T) {
	export := exports(t)["xfs"]
	server := newGoingServer(t)
	k, sub := kernel(t), serverDir(t, export)
	gone := export
	gone.Server = goingAddress
	at := target(t, k)
	if err := k.Mount(t.Context(), nfsmount.Mount{Export: gone, SubDir: sub, Target: at, Options: options(t)}); err != nil {
		t.Fatal(err)
	}
	server.goAway(t)
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(filepath.Join(at, "f"), []byte("patience"), 0o644) }()
	select {
	case err := <-wrote:
		t.Fatalf("wrote to a dead server: %v", err)
	case <-time.After(time.Second):
	}
	server.come(t)
	select {
	case err := <-wrote:
		if err != nil {
			t.Errorf("the write that waited: %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the write does not go on")
	}
	if b, err := os.ReadFile(filepath.Join(export.Share, sub, "f")); err != nil || string(b) != "patience" {
		t.Errorf("on the server: %q, %v", b, err)
	}
}

// A server that takes connections and never answers does not get as far as the
// kernel, where it would hold up the first mount of every other server. One
// that stops answering after the first question does; then callers still do
// not wait, and there is one thread however often they try.
func TestSilentServer(t *testing.T) {
	export := exports(t)["ext4"]
	for name, answers := range map[string]bool{"at once": false, "after a ping": true} {
		otherVersion := "vers=4.2"
		if answers {
			otherVersion = "vers=3"
		}
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go pretend(ln, answers)
			_, port, err := net.SplitHostPort(ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			k := kernel(t)
			at, other := target(t, k), target(t, k)
			try := func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				within(t, 2*time.Second, "the mount", func() {
					err := k.Mount(ctx, nfsmount.Mount{
						Export: volume.Export{Server: "localhost", Share: export.Share}, Target: at, Options: options(t, "vers=4.2", "port="+port),
					})
					if !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), "localhost") {
						t.Errorf("got %v, want ErrUnreachable naming the server", err)
					}
				})
			}
			try()
			threads := taskCount(t)
			for range 4 {
				try()
			}
			if grown := taskCount(t) - threads; grown > 2 {
				t.Errorf("%d more threads after retries", grown)
			}
			within(t, 2*time.Second, "a mount of another server", func() {
				if err := k.Mount(t.Context(), nfsmount.Mount{Export: export, Target: other, Options: options(t, otherVersion)}); err != nil {
					t.Error(err)
				}
			})
			ln.Close()
			if e := mountAt(t, at); e != nil {
				t.Errorf("mounted: %+v", e)
			}
		})
	}
}

// pretend takes connections and answers at most the first call on each, if it
// is one without arguments.
func pretend(ln net.Listener, answers bool) {
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		conns = append(conns, conn)
		var call [11]uint32
		if answers && len(conns) != 2 && binary.Read(conn, binary.BigEndian, &call) == nil {
			_ = binary.Write(conn, binary.BigEndian, []uint32{1<<31 | 24, call[1], 1, 0, 0, 0, 0})
		}
	}
}

func taskCount(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}
