package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// packages are Debian's; what each is for.
var packages = []string{
	"user-mode-linux", "kmod", // the guest's kernel and its modules
	"nfs-kernel-server", "nfs-common", "rpcbind", // the server, statd, and the helper that tests compare with
	"e2fsprogs", "xfsprogs", // its disks
	"iproute2",           // tc, for round trips
	"containerd", "runc", // the node's runtime
	"iptables", "containernetworking-plugins", // the pods' network
	"gcc", "libc6-dev", // the kernel's ptrace, and the race detector
	"busybox-static", // the image that test pods run
	"ca-certificates",
}

// InstallDeps installs what is missing of the Debian packages that the lab needs.
func InstallDeps(ctx context.Context) error {
	var missing []string
	for _, p := range packages {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}", p).Output()
		if err != nil || string(out) != "installed" {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	fmt.Fprintf(os.Stderr, "lab: installing %s\n", strings.Join(missing, " "))
	install := append([]string{"install", "--yes", "--no-install-recommends"}, missing...)
	for _, args := range [][]string{{"update", "--quiet"}, install} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		// The NFS server is for the guest, not for this machine.
		cmd.Env = append(cmd.Env, "RUNLEVEL=1")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("apt-get %s: %w", strings.Join(args, " "), err)
		}
	}
	return nil
}
