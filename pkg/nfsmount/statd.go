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
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", portRPCBind))
	if err != nil {
		return false
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return false
		}
	}
	port, err := getPort(conn, program{100024, 1}, ipprotoUDP) // lockd talks to statd over UDP
	return err == nil && port != 0
}
