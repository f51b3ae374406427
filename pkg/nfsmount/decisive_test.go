package nfsmount

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A version that the server does not support does not hide its answer to another one.
func TestErrorOfTheVersionThatTheServerKnows(t *testing.T) {
	k, m := kernelWith(t, syscalls{mount: func(_, _, _ string, _ uintptr, data string) error {
		if strings.HasPrefix(data, "vers=4.2,") {
			return unix.EPROTONOSUPPORT
		}
		return unix.EACCES
	}})
	if err := k.Mount(t.Context(), m); !errors.Is(err, volume.ErrAccessDenied) {
		t.Errorf("got %v, want ErrAccessDenied", err)
	}
}

// AUTH_SYS is not retried on a share that now requires Kerberos.
func TestRefusedFlavorIsForgotten(t *testing.T) {
	flavor := flavorSys
	var said []string
	k, m := kernelWith(t, syscalls{
		mount: func(_, _, _ string, _ uintptr, data string) error {
			said = append(said, saysSec(data))
			if flavor != flavorSys && saysSec(data) == flavorSys {
				return unix.EPERM
			}
			return nil
		},
		flavor: func(string) string { return flavor },
	})
	for range 3 {
		if err := k.attempt(t.Context(), m, netip.MustParseAddr("127.0.0.1")); err != nil {
			t.Fatal(err)
		}
		flavor = "krb5"
	}
	if want := []string{"", "sys", "", ""}; !slices.Equal(said, want) {
		t.Errorf("the mounts said sec= %q, want %q", said, want)
	}
}

// Version 3 is not mounted where locks would not exclude other nodes, unless that is asked
// for. Locking options reach the kernel.
func TestVersion3NeedsStatd(t *testing.T) {
	for _, tt := range []struct {
		option     string
		localLocks bool
		statd      bool
		mounts     bool
	}{
		{"", false, false, false},
		{"", false, true, true},
		{"lock", false, false, false},
		{"lock", false, true, true},
		{"nolock", false, false, true},
		{"local_lock=all", false, false, true},
		{"", true, false, true},
	} {
		var data string
		k, m := kernelWith(t, syscalls{mount: func(_, _, _ string, _ uintptr, d string) error { data = d; return nil }})
		k.statd = func(context.Context) bool { return tt.statd }
		var err error
		if m.Options, err = ParseOptions([]string{"vers=3", tt.option}); err != nil {
			t.Fatal(err)
		}
		m.LocalLocks = tt.localLocks
		err = k.attempt(t.Context(), m, netip.MustParseAddr("127.0.0.1"))
		if tt.mounts && err != nil || !tt.mounts && (!errors.Is(err, volume.ErrUnsupported) || data != "") {
			t.Errorf("%+v: %v, mounted with %q", tt, err, data)
		}
		list := strings.Split(data, ",")
		if tt.mounts && (tt.option != "" && !slices.Contains(list, tt.option) || slices.Contains(list, "nolock") != (tt.localLocks || tt.option == "nolock")) {
			t.Errorf("%+v: mounted with %s", tt, data)
		}
	}
}

// Without rpc.statd, what version 4 said decides, unless the server does not speak it.
func TestErrorOfVersion4WithoutStatd(t *testing.T) {
	for said, want := range map[error]error{nil: volume.ErrUnsupported, unix.EPROTONOSUPPORT: volume.ErrUnsupported, unix.ENOENT: volume.ErrShareNotFound} {
		err := withoutStatd(said)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "nolock") {
			t.Errorf("version 4 said %v: %v, want %v", said, err, want)
		}
	}
}

// A caller who gave up waiting for a server does not keep the target locked.
func TestGivenUpMountFreesItsTarget(t *testing.T) {
	k, m := kernelWith(t, syscalls{})
	free, err := k.servers.Acquire(t.Context(), m.Export.Server)
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := k.lock(short, m); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another mount of the server hangs: %v, want DeadlineExceeded", err)
	}
	long, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	unlock, err := k.targets.Acquire(long, m.Target)
	if err != nil {
		t.Fatalf("after it: %v", err)
	}
	unlock()
}

// A server that is only slow to answer about one mount is asked about another.
func TestSlowServerIsAskedForAnotherMount(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	k, m := kernelWith(t, syscalls{statfs: func(target string) (Usage, error) {
		if target == "/slow" {
			close(asked)
			<-release
		}
		return Usage{}, nil
	}})
	k.cfg.AnswerTimeout = time.Minute
	slow := make(chan error, 1)
	go func() {
		_, err := k.Usage(t.Context(), Entry{Target: "/slow", Server: m.Export.Server})
		slow <- err
	}()
	<-asked
	if _, err := k.Usage(t.Context(), Entry{Target: "/quick", Server: m.Export.Server}); err != nil {
		t.Errorf("the other mount: %v", err)
	}
	close(release)
	if err := <-slow; err != nil {
		t.Errorf("the slow one: %v", err)
	}
}

// A mode that is already set is left alone, as is the target of a symlink.
func TestSetModeChangesNoMoreThanItMust(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	link := dir + "-link"
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	stat := func(name string) (st unix.Stat_t) {
		if err := unix.Stat(name, &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	changed := func() unix.Timespec {
		st := stat(dir)
		if st.Mode&0o7777 != 0o755 {
			t.Errorf("its mode is %o", st.Mode&0o7777)
		}
		return st.Ctim
	}
	before := changed()
	for clock := dir + "-clock"; ; { // until a change would show
		if err := errors.Join(os.WriteFile(clock, nil, 0o600), os.Chmod(clock, 0o600)); err != nil {
			t.Fatal(err)
		}
		if stat(clock).Ctim != before {
			break
		}
	}
	if err := setMode(dir, 0o755); err != nil {
		t.Error(err)
	}
	if after := changed(); after != before {
		t.Error("a mode that was right has been set")
	}
	if err := setMode(link, 0o700); !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		t.Errorf("through a symlink: %v", err)
	}
	changed()
}
