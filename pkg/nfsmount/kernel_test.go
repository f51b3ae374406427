package nfsmount

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// kernelWith returns a Kernel with fake system calls, and a request for a server that
// accepts TCP connections.
func kernelWith(t *testing.T, sys syscalls) (*Kernel, Mount) {
	t.Helper()
	cfg := DefaultKernelConfig()
	cfg.UnmountTimeout, cfg.AnswerTimeout = 20*time.Millisecond, 20*time.Millisecond
	k, err := NewKernel(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if sys.flavor == nil {
		sys.flavor = func(string) string { return "" }
	}
	k.sys = sys
	k.statd = func(context.Context) bool { return false }
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go answerPings(ln)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o, err := ParseOptions([]string{"port=" + port})
	if err != nil {
		t.Fatal(err)
	}
	return k, Mount{Export: volume.Export{Server: "127.0.0.1", Share: "/e"}, SubDir: "v", Target: t.TempDir(), Options: o}
}

// answerPings is a live server that does nothing else.
func answerPings(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var call [11]uint32 // fragment header and a call without arguments
			if binary.Read(conn, binary.BigEndian, &call) == nil {
				binary.Write(conn, binary.BigEndian, []uint32{1<<31 | 24, call[1], 1, 0, 0, 0, 0}) //nolint:errcheck // the client sees
			}
		}()
	}
}

func TestMountMapsErrors(t *testing.T) {
	tests := map[unix.Errno]error{
		unix.ENOENT:          volume.ErrShareNotFound,
		unix.ESTALE:          volume.ErrShareNotFound,
		unix.EACCES:          volume.ErrAccessDenied,
		unix.EPERM:           volume.ErrAccessDenied,
		unix.ECONNREFUSED:    volume.ErrUnreachable,
		unix.ETIMEDOUT:       volume.ErrUnreachable,
		unix.EINVAL:          volume.ErrMountOptions,
		unix.EPROTONOSUPPORT: volume.ErrMountOptions,
		unix.ENODEV:          volume.ErrUnsupported,
		unix.EBUSY:           unix.EBUSY,
	}
	for errno, want := range tests {
		k, m := kernelWith(t, syscalls{mount: func(string, string, string, uintptr, string) error { return errno }})
		err := k.Mount(t.Context(), m)
		if !errors.Is(err, want) || !errors.Is(err, errno) || !strings.Contains(err.Error(), "127.0.0.1:/e/v") {
			t.Errorf("%v becomes %v, want %v", errno, err, want)
		}
	}
}

func TestMountFallsBack(t *testing.T) {
	var tried []string
	k, m := kernelWith(t, syscalls{mount: func(source, _, fstype string, _ uintptr, data string) error {
		tried = append(tried, fstype+" "+strings.Split(data, ",")[0])
		if strings.Contains(data, "vers=4.1") {
			return nil
		}
		return unix.EPROTONOSUPPORT
	}})
	if err := k.Mount(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(tried, "; "); got != "nfs4 vers=4.2; nfs4 vers=4.1" {
		t.Errorf("tried %s", got)
	}
}

func TestUnreachableServerNeverReachesTheKernel(t *testing.T) {
	k, m := kernelWith(t, syscalls{mount: func(string, string, string, uintptr, string) error {
		t.Error("mount(2) was called")
		return nil
	}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	m.Options.data = []string{"port=" + addr[strings.LastIndex(addr, ":")+1:]}
	if err := k.Mount(t.Context(), m); !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), addr) {
		t.Errorf("got %v, want ErrUnreachable naming %s", err, addr)
	}
}

// A hung mount(2) costs one thread for any number of callers, and what it mounts after they
// have given up is unmounted.
func TestHangingMountIsOneAndUndone(t *testing.T) {
	var calls atomic.Int32
	release, undone := make(chan struct{}), make(chan string, 1)
	k, m := kernelWith(t, syscalls{
		mount: func(string, string, string, uintptr, string) error {
			calls.Add(1)
			<-release
			return nil
		},
		unmount: func(target string, flags int) error {
			if flags != unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW {
				t.Errorf("undone with flags %#x, which can hang or follow a symlink", flags)
			}
			undone <- target
			return nil
		},
	})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := k.Mount(ctx, m); !errors.Is(err, volume.ErrUnreachable) {
				t.Errorf("got %v, want ErrUnreachable", err)
			}
		})
	}
	wg.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("%d mount(2) calls hang, want 1", n)
	}
	close(release)
	if got := <-undone; got != m.Target {
		t.Errorf("undid %s, want %s", got, m.Target)
	}
	// Once it has settled, the next mount of the server succeeds.
	if err := k.Mount(t.Context(), m); err != nil {
		t.Error(err)
	}
}

func TestHangDoesNotSpread(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	hanging := make(chan struct{})
	k, m := kernelWith(t, syscalls{
		mount: func(source, _, _ string, _ uintptr, _ string) error {
			if strings.HasPrefix(source, "localhost:") {
				return nil
			}
			close(hanging)
			<-release
			return unix.ETIMEDOUT
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go k.Mount(ctx, m) //nolint:errcheck // it hangs
	<-hanging
	other := m
	other.Export.Server, other.Target = "localhost", t.TempDir()
	if err := k.Mount(t.Context(), other); err != nil {
		t.Errorf("another server: %v", err)
	}
}

func TestUnmount(t *testing.T) {
	const detach = unix.MNT_DETACH
	hangs := errors.New("does not return")
	type step struct {
		flags  int
		answer error
	}
	tests := map[string]struct {
		steps []step
		fails bool
	}{
		"not mounted":      {[]step{{0, unix.EINVAL}}, false},
		"no directory":     {[]step{{0, unix.ENOENT}}, false},
		"mounted twice":    {[]step{{0, nil}, {0, nil}, {0, unix.EINVAL}}, false},
		"busy is detached": {[]step{{0, unix.EBUSY}, {detach, nil}, {0, unix.EINVAL}}, false},
		"dead is detached": {[]step{{0, hangs}, {detach, nil}, {detach, unix.EINVAL}}, false},
		"detach is slow":   {[]step{{0, hangs}, {detach, hangs}}, false},
		"not allowed":      {[]step{{0, unix.EPERM}}, true},
		"never ends":       {slices.Repeat([]step{{0, nil}}, maxStacked), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			hang := make(chan struct{})
			defer close(hang)
			var calls atomic.Int32
			k, m := kernelWith(t, syscalls{unmount: func(_ string, flags int) error {
				n := int(calls.Add(1))
				if n > len(tt.steps) {
					return unix.EINVAL
				}
				s := tt.steps[n-1]
				if flags != s.flags|unix.UMOUNT_NOFOLLOW {
					t.Errorf("call %d has flags %#x, want %#x and not to follow symlinks", n, flags, s.flags)
				}
				if errors.Is(s.answer, hangs) {
					<-hang
				}
				return s.answer
			}})
			err := k.Unmount(t.Context(), m.Target)
			if n := int(calls.Load()); (err != nil) != tt.fails || n < len(tt.steps) {
				t.Errorf("%v after %d system calls, want failure %v after %d", err, n, tt.fails, len(tt.steps))
			}
		})
	}
}

// Retries on a dead server join the hung calls instead of adding threads.
func TestUnmountRetriesAddNoThreads(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	var calls atomic.Int32
	k, m := kernelWith(t, syscalls{unmount: func(string, int) error {
		calls.Add(1)
		<-hang
		return nil
	}})
	for range 5 {
		// The mount table, which does not have the target, decides.
		if err := k.Unmount(t.Context(), m.Target); err != nil {
			t.Error(err)
		}
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d system calls hang after 5 attempts, want one of each kind", n)
	}
}

func TestUsageErrors(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	var calls atomic.Int32
	tests := map[string]struct {
		statfs func() error
		want   error
	}{
		"good":   {func() error { return nil }, nil},
		"stale":  {func() error { return unix.ESTALE }, volume.ErrStale},
		"soft":   {func() error { return unix.EIO }, volume.ErrUnreachable},
		"denied": {func() error { return unix.EACCES }, volume.ErrAccessDenied},
		"dead": {func() error {
			calls.Add(1)
			<-hang
			return nil
		}, volume.ErrUnreachable},
	}
	for name, tt := range tests {
		k, m := kernelWith(t, syscalls{statfs: func(string) (Usage, error) { return Usage{}, tt.statfs() }})
		for range 3 {
			if _, err := k.Usage(t.Context(), Entry{Target: m.Target}); !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", name, err, tt.want)
			}
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d statfs calls hang after 3 questions, want 1", n)
	}
}

// A server that accepts connections but stays silent, or does not speak RPC, must not
// reach the kernel either.
func TestSilentServerNeverReachesTheKernel(t *testing.T) {
	for name, answer := range map[string]string{"silent": "", "not RPC": "HTTP/1.1 400 Bad Request\r\n\r\n"} {
		k, m := kernelWith(t, syscalls{mount: func(string, string, string, uintptr, string) error {
			t.Errorf("%s: mount(2) was called", name)
			return nil
		}})
		k.probe.timeout = 50 * time.Millisecond
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				io.WriteString(conn, answer) //nolint:errcheck // the client sees
			}
		}()
		addr := ln.Addr().String()
		m.Options.data = []string{"port=" + addr[strings.LastIndex(addr, ":")+1:]}
		if err := k.Mount(t.Context(), m); !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: got %v, want ErrUnreachable naming %s", name, err, addr)
		}
		ln.Close()
	}
}

func TestGetPort(t *testing.T) {
	const xid = 0x6e667363
	reply := func(words ...uint32) []byte {
		var b []byte
		for _, w := range words {
			b = binary.BigEndian.AppendUint32(b, w)
		}
		return b
	}
	tests := map[string]struct {
		answer []byte
		port   uint32
		fails  bool
	}{
		"registered": {reply(1<<31|28, xid, 1, 0, 0, 0, 0, 40000), 40000, false},
		"not":        {reply(1<<31|28, xid, 1, 0, 0, 0, 0, 0), 0, false},
		"denied":     {reply(1<<31|20, xid, 1, 1, 0, 0), 0, true},
		"no program": {reply(1<<31|24, xid, 1, 0, 0, 0, 1), 0, true},
		"other call": {reply(1<<31|28, 7, 1, 0, 0, 0, 0, 5), 0, true},
		"short":      {reply(1<<31|28, xid, 1), 0, true},
		"huge":       {reply(1<<31|1<<20, xid, 1), 0, true},
		"nothing":    {nil, 0, true},
	}
	for name, tt := range tests {
		var asked bytes.Buffer
		rw := struct {
			*bytes.Reader
			*writer
		}{bytes.NewReader(tt.answer), &writer{&asked}}
		port, err := getPort(rw, program{100024, 1}, ipprotoUDP)
		if port != tt.port || (err != nil) != tt.fails {
			t.Errorf("%s: port %d, %v", name, port, err)
		}
		if asked.Len() != 4+14*4 {
			t.Errorf("%s: asked with %d bytes", name, asked.Len())
		}
	}
}

type writer struct{ to *bytes.Buffer }

func (w *writer) Write(b []byte) (int, error) { return w.to.Write(b) }

func TestNewKernelChecksTimeouts(t *testing.T) {
	cfg := DefaultKernelConfig()
	cfg.DialTimeout = 0
	if _, err := NewKernel(cfg); err == nil {
		t.Error("a zero dial timeout was accepted")
	}
}
