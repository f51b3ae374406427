package nfs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestKernelKeepsTheContract(t *testing.T) {
	for fs, export := range exports(t) {
		for _, version := range []string{"", "vers=4.2", "vers=4.1", "vers=4.0", "vers=3"} {
			name := fs + " " + version
			t.Run(name, func(t *testing.T) {
				nfsmounttest.TestMounter(t, nfsmounttest.Fixture{
					Mounter: kernel(t), Export: export, Dir: export.Share, DeadServer: unused,
					Options: []string{version}, Scratch: t.TempDir(),
				})
			})
		}
	}
}

func TestTopmostMountIsFound(t *testing.T) {
	k := kernel(t)
	at := target(t, k)
	for _, fs := range []string{"ext4", "xfs"} { // the kernel refuses one file system upon itself
		export := exports(t)[fs]
		if err := k.Mount(t.Context(), nfsmount.Mount{Export: export, Target: at}); err != nil {
			t.Fatal(err)
		}
		if e, mounted, err := k.MountAt(t.Context(), at); err != nil || !mounted || e.Source != export.Source("") {
			t.Errorf("got %+v, %v, %v, want %s", e, mounted, err, export.Source(""))
		}
	}
}

func TestVersions(t *testing.T) {
	for asked, want := range map[string]string{
		"": "vers=4.2", "vers=4": "vers=4.2", "nfsvers=4.1": "vers=4.1", "v4.0": "vers=4.0", "vers=3": "vers=3",
	} {
		k := kernel(t)
		at := target(t, k)
		m := nfsmount.Mount{Export: exports(t)["ext4"], Target: at, Options: options(t, asked)}
		if err := k.Mount(t.Context(), m); err != nil {
			t.Errorf("%q: %v", asked, err)
			continue
		}
		if got := mountAt(t, at).VFSOptions; !strings.Contains(","+got+",", ","+want+",") {
			t.Errorf("%q mounted with %s, want %s", asked, got, want)
		}
	}
}

// Locks through a version 3 mount need a statd on the client, and exclude other clients
// of the server unless nolock is asked for. The mounts of these tests share nothing, so to
// the server they are two clients.
func TestVersion3Locks(t *testing.T) {
	export := exports(t)["ext4"]
	k, sub := kernel(t), serverDir(t, export)
	lock := func(option string) (second error) {
		t.Helper()
		var files [2]*os.File
		for i := range files {
			at := target(t, k)
			m := nfsmount.Mount{Export: export, SubDir: sub, Target: at, Options: options(t, "vers=3", "nosharecache", option)}
			if err := k.Mount(t.Context(), m); err != nil {
				return err
			}
			f, err := os.OpenFile(filepath.Join(at, "locked"), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			files[i] = f
		}
		if err := syscall.Flock(int(files[0].Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			t.Errorf("the first lock, %s: %v", option, err)
		}
		second = syscall.Flock(int(files[1].Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err := syscall.Flock(int(files[0].Fd()), syscall.LOCK_UN); err != nil {
			t.Error(err)
		}
		if err := syscall.Flock(int(files[1].Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			t.Errorf("the second lock after the first is released, %s: %v", option, err)
		}
		if err := syscall.Flock(int(files[1].Fd()), syscall.LOCK_UN); err != nil {
			t.Error(err)
		}
		return second
	}
	stopStatd(t)
	if err := lock("lock"); !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), "rpc.statd") {
		t.Errorf("without a statd: %v, want ErrUnsupported", err)
	}
	if err := lock("nolock"); err != nil {
		t.Errorf("with nolock and without a statd: %v, want locks of each client's own", err)
	}
	run(t, "rpc.statd") // as the unit rpc-statd does
	if err := lock("lock"); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("two clients have one lock: %v", err)
	}
}

// stopStatd stops the statd of the lab.
func stopStatd(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile("/run/rpc.statd.pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "statd is gone", func() error {
		if out, err := exec.Command("rpcinfo", "-p").Output(); err != nil || strings.Contains(string(out), "status") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// Of several flavors the last one counts.
func TestLastSecurityFlavorWins(t *testing.T) {
	e, _ := export(t, "LAB_EXPORT_XFS", "rw,no_root_squash,sec=sys", 0o777)
	k := kernel(t)
	for list, want := range map[string]error{"sec=krb5,sec=sys": nil, "sec=sys,sec=krb5": volume.ErrAccessDenied} {
		if err := k.Mount(t.Context(), nfsmount.Mount{Export: e, Target: target(t, k), Options: options(t, list)}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", list, err, want)
		}
	}
}

// The flavor of a share is remembered, until the server wants another one.
func TestSecurityFlavorChanges(t *testing.T) {
	e, dir := export(t, "LAB_EXPORT_XFS", "rw,no_root_squash", 0o777)
	k := kernel(t)
	for i, flavor := range []string{"sys", "sys", "krb5", "sys"} {
		reexport(t, dir, "rw,no_root_squash,sec="+flavor)
		at := target(t, k)
		err := k.Mount(t.Context(), nfsmount.Mount{Export: e, Target: at})
		if flavor != "sys" {
			if !errors.Is(err, volume.ErrAccessDenied) {
				t.Errorf("mount %d, of an export with sec=%s: %v, want it refused", i+1, flavor, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("mount %d: %v", i+1, err)
		}
		if got := mountAt(t, at).VFSOptions; !strings.Contains(","+got+",", ",sec=sys,") {
			t.Errorf("mount %d is one with %s", i+1, got)
		}
		if err := k.Unmount(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOptionsReachTheKernel(t *testing.T) {
	k := kernel(t)
	at := target(t, k)
	m := nfsmount.Mount{Export: exports(t)["xfs"], Target: at, Options: options(t, "soft,timeo=77,nosuid", "bg,_netdev,retry=1", "noexec")}
	if err := k.Mount(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	info := mountAt(t, at)
	all := "," + info.Options + "," + info.VFSOptions + ","
	for _, want := range []string{"soft", "timeo=77", "nosuid", "noexec", "addr=" + m.Export.Server} {
		if !strings.Contains(all, ","+want+",") {
			t.Errorf("%s is missing in %s", want, all)
		}
	}
	m.Target, m.Options = target(t, k), options(t, "nosuchoption")
	if err := k.Mount(t.Context(), m); !errors.Is(err, volume.ErrMountOptions) {
		t.Errorf("an option the kernel does not know: %v, want ErrMountOptions", err)
	}
}

func TestReadOnly(t *testing.T) {
	k := kernel(t)
	at := target(t, k)
	export := exports(t)["ext4"]
	if err := k.Mount(t.Context(), nfsmount.Mount{Export: export, SubDir: serverDir(t, export), Target: at, Options: options(t, "ro")}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "f"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("write: %v, want EROFS", err)
	}
}

func TestNotExported(t *testing.T) {
	export := exports(t)["ext4"]
	export.Share = "/not-exported"
	for _, version := range []string{"", "vers=4.2", "vers=3"} {
		k := kernel(t)
		at := target(t, k)
		within(t, 10*time.Second, "the refusal", func() {
			err := k.Mount(t.Context(), nfsmount.Mount{Export: export, Target: at, Options: options(t, version)})
			// A version 3 server does not say whether there is such a path.
			denied := version == "vers=3" && errors.Is(err, volume.ErrAccessDenied)
			if !errors.Is(err, volume.ErrShareNotFound) && !denied {
				t.Errorf("%q: %v, want ErrShareNotFound", version, err)
			}
		})
		if e := mountAt(t, at); e != nil {
			t.Errorf("%q left %+v", version, e)
		}
	}
}

func TestIPv6(t *testing.T) {
	export := exports(t)["ext4"]
	conn, err := net.Dial("tcp", "[::1]:2049")
	if err != nil {
		t.Skipf("the lab's server has no IPv6: %v", err)
	}
	conn.Close()
	export.Server = "::1"
	for _, version := range []string{"vers=4.2", "vers=3"} {
		k := kernel(t)
		at := target(t, k)
		if err := k.Mount(t.Context(), nfsmount.Mount{Export: export, Target: at, Options: options(t, version)}); err != nil {
			t.Errorf("%s: %v", version, err)
			continue
		}
		if got := mountAt(t, at).Source; got != "[::1]:"+export.Share {
			t.Errorf("%s: source %s", version, got)
		}
	}
}

func TestStaleMountIsDetected(t *testing.T) {
	export := exports(t)["ext4"]
	k := kernel(t)
	sub := serverDir(t, export)
	at := target(t, k)
	if err := k.Mount(t.Context(), nfsmount.Mount{Export: export, SubDir: sub, Target: at, Options: options(t)}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(export.Share, sub)); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Usage(t.Context(), nfsmount.Entry{Target: at}); !errors.Is(err, volume.ErrStale) {
		t.Errorf("got %v, want ErrStale", err)
	}
}
