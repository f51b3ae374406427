package nfsmount

import (
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// For any number of questions about volumes of a dead server, only one thread waits.
// Volumes of other servers are not blocked.
func TestDeadServerCostsOneThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var hanging atomic.Int32
		k, err := NewKernel(DefaultKernelConfig())
		if err != nil {
			t.Fatal(err)
		}
		k.sys = syscalls{statfs: func(target string) (Usage, error) {
			if strings.HasPrefix(target, "/dead") {
				hanging.Add(1)
				<-hang
				return Usage{}, unix.ESTALE
			}
			return Usage{Bytes: Amount{Total: 1}}, nil
		}}
		for _, target := range []string{"/dead/1", "/dead/2", "/dead/1", "/dead/3"} {
			e := Entry{Target: target, Source: "dead:/e", Server: "192.0.2.1"}
			_, err := k.Usage(t.Context(), e)
			if !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), "192.0.2.1") || !strings.Contains(err.Error(), target) {
				t.Errorf("got %v, want ErrUnreachable naming the server and %s", err, target)
			}
		}
		if n := hanging.Load(); n != 1 {
			t.Errorf("%d calls wait, want 1", n)
		}
		if u, err := k.Usage(t.Context(), Entry{Target: "/alive", Source: "alive:/e", Server: "192.0.2.2"}); err != nil || u.Bytes.Total != 1 {
			t.Errorf("another server: %+v, %v", u, err)
		}
		close(hang)
		synctest.Wait()
		// The server has answered, so it is asked again.
		if _, err := k.Usage(t.Context(), Entry{Target: "/dead/2", Source: "dead:/e", Server: "192.0.2.1"}); !errors.Is(err, volume.ErrStale) {
			t.Errorf("got %v, want ErrStale", err)
		}
	})
}

func TestUsageOf(t *testing.T) {
	got := UsageOf(unix.Statfs_t{Bsize: 1 << 20, Frsize: 1024, Blocks: 100, Bfree: 40, Bavail: 30, Files: 10, Ffree: 4})
	want := Usage{Bytes: Amount{Total: 102400, Used: 61440, Available: 30720}, Inodes: Amount{Total: 10, Used: 6, Available: 4}}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got = UsageOf(unix.Statfs_t{Frsize: 4096, Blocks: math.MaxUint64, Bfree: math.MaxUint64, Bavail: math.MaxUint64, Files: 3, Ffree: 7})
	if got.Bytes != (Amount{Total: math.MaxInt64, Available: math.MaxInt64}) || got.Inodes.Used != 0 {
		t.Errorf("without a limit: %+v", got)
	}
}

func TestEntryServer(t *testing.T) {
	for want, i := range map[string]mountinfo.Info{
		"10.0.0.1":        {FSType: "nfs4", Source: "nas:/e", VFSOptions: "rw,vers=4.2,proto=tcp,port=0,clientaddr=10.0.0.9,addr=10.0.0.1"},
		"10.0.0.2":        {FSType: "nfs", Source: "nas:/e", VFSOptions: "rw,vers=3,mountaddr=10.0.0.7,mountport=20048,addr=10.0.0.2"},
		"10.0.0.3:20490":  {FSType: "nfs4", Source: "nas:/e", VFSOptions: "rw,port=20490,addr=10.0.0.3"},
		"fe80::1":         {FSType: "nfs4", Source: "[fe80::1]:/e", VFSOptions: "rw"},
		"[fe80::2]:20490": {FSType: "nfs4", Source: "nas:/e", VFSOptions: "rw,port=20490,addr=fe80::2"},
		"nas":             {FSType: "nfs", Source: "nas:/e:/f", VFSOptions: ""},
		"":                {FSType: "ext4", Source: "/dev/sda1", VFSOptions: "rw,addr=10.0.0.1"},
	} {
		if got := entryOf(&i).Server; got != want {
			t.Errorf("%+v: server %q, want %q", i, got, want)
		}
	}
}
