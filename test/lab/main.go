// Command lab gives the tests a real kernel NFS server and client, and a real
// Kubernetes node, on a machine that has neither: see docs/lab.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nfs-csi/nfs-csi/test/lab/internal/cli"
	"github.com/nfs-csi/nfs-csi/test/lab/internal/guest"
	"github.com/nfs-csi/nfs-csi/test/lab/internal/host"
)

func main() {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case host.JailCommand:
			exit(0, host.Jail(os.Args[2], os.Args[3:]))
		case host.GuestCommand:
			guest.Main(os.Args[2])
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	exit(cli.Run(ctx, os.Args[1:]))
}

// exit leaves 125 to the lab's own failures, as other programs that run a
// command in another place do (docker-run(1), chroot(1)).
func exit(code int, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "lab: %v\n", err)
		os.Exit(125)
	}
	os.Exit(code)
}
