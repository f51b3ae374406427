package nfs

import (
	"errors"
	"net"
	"os"
	"path/filepath"
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

// A lock taken through a version 3 mount must be granted, and by lockd: the lab runs a
// statd.
func TestVersion3Locks(t *testing.T) {
	export := exports(t)["ext4"]
	k, sub := kernel(t), serverDir(t, export)
	at := target(t, k)
	if err := k.Mount(t.Context(), nfsmount.Mount{Export: export, SubDir: sub, Target: at, Options: options(t, "vers=3")}); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(at, "locked"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock); err != nil {
		t.Errorf("lock with %s: %v", mountAt(t, at).VFSOptions, err)
	}
	if got := mountAt(t, at).VFSOptions; !strings.Contains(got, "local_lock=none") {
		t.Errorf("locks are local to this node: %s", got)
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
