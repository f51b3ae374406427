package nfsmount

import (
	"context"
	"net"
	"time"
)

// statdRegistered asks the rpcbind of this network namespace whether rpc.statd
// runs (RFC 1833, PMAPPROC_GETPORT). NFSv3 locks go through the kernel's lockd,
// which refuses every lock (ENOLCK) without a statd, since only statd knows after a
// reboot who held them.
func statdRegistered(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var port uint32
	var local prober
	_, err := local.connect(ctx, "tcp", "127.0.0.1", portRPCBind, question{put: func(conn net.Conn) (err error) {
		port, err = getPort(conn, program{100024, 1}, ipprotoUDP) // lockd talks to statd over UDP
		return err
	}})
	return err == nil && port != 0
}
