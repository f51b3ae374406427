package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/test/lab/internal/job"
)

// exports are the file systems that the NFS server offers, one a disk.
var exports = []struct {
	device, dir, fstype, data string
}{
	{"/dev/ubda", "/export/ext4", "ext4", ""},
	{"/dev/ubdb", "/export/xfs", "xfs", "prjquota"},
}

const exportOptions = "rw,no_root_squash,no_subtree_check,insecure"

func loadModules(j job.Job) error {
	names := []string{"ipv6", "nfsd", "nfsv3", "nfsv4", "xfs", "sch_netem"}
	if j.Cluster != nil {
		names = append(names, "overlay", "veth", "dummy", "bridge", "iptable_nat", "iptable_filter")
	}
	return command("modprobe", append([]string{"-a", "-d", j.ModulesRoot}, names...)...)
}

func setUpNetwork(job.Job) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

func mountDisks(job.Job) error {
	for _, e := range exports {
		if err := os.MkdirAll(e.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(e.device, e.dir, e.fstype, 0, e.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", e.device, e.dir, err)
		}
		if err := os.Chmod(e.dir, 0o777); err != nil {
			return err
		}
	}
	return nil
}

func unmountDisks() {
	for _, e := range exports {
		if err := unix.Unmount(e.dir, 0); err != nil {
			// Something still uses it; the journal is whole all the same.
			_ = unix.Unmount(e.dir, unix.MNT_DETACH)
		}
	}
}

// startNFS starts the server that the tests talk to. A restarted server makes
// its clients wait for the grace period, so it is as short as the kernel allows.
func startNFS(job.Job) error {
	if err := unix.Mount("nfsd", "/proc/fs/nfsd", "nfsd", 0, ""); err != nil {
		return fmt.Errorf("mount nfsd: %w", err)
	}
	if err := unix.Mount("sunrpc", "/var/lib/nfs/rpc_pipefs", "rpc_pipefs", 0, ""); err != nil {
		return fmt.Errorf("mount rpc_pipefs: %w", err)
	}
	for _, knob := range []struct{ name, value string }{
		{"nfsv4gracetime", "10"},
		{"nfsv4leasetime", "10"},
	} {
		if err := os.WriteFile(filepath.Join("/proc/fs/nfsd", knob.name), []byte(knob.value), 0); err != nil {
			return fmt.Errorf("set %s: %w", knob.name, err)
		}
	}
	var lines []string
	for _, e := range exports {
		lines = append(lines, e.dir+" *("+exportOptions+")")
	}
	if err := os.WriteFile("/etc/exports", []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"rpcbind", "-w"},
		{"rpc.statd"},
		{"exportfs", "-ra"},
		{"rpc.nfsd", "8"},
		{"rpc.mountd"},
	} {
		if err := command(argv[0], argv[1:]...); err != nil {
			return err
		}
	}
	// No client is known yet, so nobody has anything to reclaim.
	_ = os.WriteFile("/proc/fs/nfsd/v4_end_grace", []byte("Y"), 0)
	return nil
}

func stopNFS() error { return command("rpc.nfsd", "0") }

// command runs a helper to its end; a helper that hangs is an error.
func command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
