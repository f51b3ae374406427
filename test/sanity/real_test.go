package sanity

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/nfs-csi/nfs-csi/pkg/rpc"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// realSubjects are the built nfsplugin on each export of the lab. What the lab
// promises and does not give is a failure, never a reason to test less.
func realSubjects(t *testing.T) []subject {
	t.Helper()
	server := os.Getenv("LAB_NFS_SERVER")
	address := startPlugin(t)
	var subjects []subject
	for _, variable := range []string{"LAB_EXPORT_EXT4", "LAB_EXPORT_XFS"} {
		dir := os.Getenv(variable)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			t.Fatalf("%s=%q is not the server's directory: %v", variable, dir, err)
		}
		export, err := volume.ParseExport(server, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { mustBeClean(t, variable, dir) })
		subjects = append(subjects, subject{name: "nfsplugin on " + export.String(), address: address, export: export})
	}
	return subjects
}

// startPlugin runs the program as a pod would, and checks in the end that it
// stops when told to and leaves no mount behind.
func startPlugin(t *testing.T) (address string) {
	t.Helper()
	binary := os.Getenv("NFSPLUGIN")
	if binary == "" {
		binary = "../../bin/nfsplugin"
	}
	dir := t.TempDir()
	address = "unix://" + filepath.Join(dir, "csi.sock")
	logFile, err := os.Create(filepath.Join(dir, "nfsplugin.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary,
		"--mode=all", "--node-id=lab", "--endpoint="+address, "--working-mount-dir="+filepath.Join(dir, "mounts"), "-v=4")
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopPlugin(t, cmd)
		if err := logFile.Close(); err != nil {
			t.Error(err)
		}
		if log, err := os.ReadFile(logFile.Name()); t.Failed() && err == nil {
			t.Logf("nfsplugin said:\n%s", log)
		}
		mustHaveNoMounts(t, dir)
	})
	waitForDriver(t, address)
	return address
}

func stopPlugin(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	killed := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer killed.Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("nfsplugin did not stop well: %v", err)
	}
}

func waitForDriver(t *testing.T, address string) {
	t.Helper()
	prober, err := rpc.NewProber(address)
	if err != nil {
		t.Fatal(err)
	}
	defer prober.Close()
	eventually(t, "nfsplugin serves", func(ctx context.Context) error { return prober.Check(ctx) })
}

func mustHaveNoMounts(t *testing.T, below string) {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(below))
	if err != nil {
		t.Error(err)
	}
	for _, m := range mounts {
		t.Errorf("left mounted: %s at %s", m.Source, m.Mountpoint)
	}
}

// mustBeClean looks at the server's own disk: no volume, no record and no trash
// is left when every volume has been deleted.
func mustBeClean(t *testing.T, name, dir string) {
	t.Helper()
	eventually(t, name+" is empty", func(context.Context) error {
		var left []string
		err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
			rel, relErr := filepath.Rel(dir, p)
			switch rel {
			case ".", "lost+found", ".nfs-csi", ".nfs-csi/volumes", ".nfs-csi/trash", ".nfs-csi/tmp", ".nfs-csi/snapshots", ".nfs-csi/groups":
			default:
				left = append(left, rel)
			}
			return errors.Join(err, relErr)
		})
		if err == nil && len(left) > 0 {
			err = errors.New("left are " + strings.Join(left, ", "))
		}
		return err
	})
}

// eventually waits for what another process does in its own time.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("%s: not within 30s: %v", what, err)
			return
		}
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
}
