// Package nfs tests the packages that mount and make volumes on a real kernel
// NFS server and client. It runs in the lab (`make test-nfs`) and is skipped
// elsewhere.
package nfs

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestMain(m *testing.M) {
	syscall.Umask(0) // as nfsplugin does
	if os.Getenv(victimVariable) != "" {
		victim()
	}
	if os.Getenv(stepVariable) != "" {
		dying()
	}
	if os.Getenv(deletionsVariable) != "" {
		deleting()
	}
	os.Exit(m.Run())
}

// unused is an address of the documentation range: nothing can answer there.
const unused = "192.0.2.1"

// exports are those of the lab, by file system. What the lab promises and does
// not give is a failure.
func exports(t *testing.T) map[string]volume.Export {
	t.Helper()
	server := os.Getenv("LAB_NFS_SERVER")
	if server == "" {
		t.Skip("needs the lab: make test-nfs")
	}
	all := map[string]volume.Export{}
	for name, variable := range map[string]string{"ext4": "LAB_EXPORT_EXT4", "xfs": "LAB_EXPORT_XFS"} {
		e, err := volume.ParseExport(server, os.Getenv(variable))
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		all[name] = e
	}
	return all
}

func kernel(t *testing.T) *nfsmount.Kernel {
	t.Helper()
	k, err := nfsmount.NewKernel(nfsmount.DefaultKernelConfig())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func options(t *testing.T, list ...string) nfsmount.Options {
	t.Helper()
	o, err := nfsmount.ParseOptions(list)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// target makes a mount point that is unmounted and removed with the test.
func target(t *testing.T, k *nfsmount.Kernel) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "target")
	mkdir(t, dir)
	t.Cleanup(func() {
		if err := k.Unmount(context.WithoutCancel(t.Context()), dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
}

// serverDir makes a directory on the server's own disk and returns its name in
// the export.
func serverDir(t *testing.T, e volume.Export) string {
	t.Helper()
	dir, err := os.MkdirTemp(e.Share, "test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Base(dir)
}

func mountAt(t *testing.T, target string) *mountinfo.Info {
	t.Helper()
	found, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(target))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

// within fails the test when f takes longer than d.
func within(t *testing.T, d time.Duration, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > d {
		t.Errorf("%s took %s, at most %s is allowed", what, took.Round(time.Millisecond), d)
	}
}
