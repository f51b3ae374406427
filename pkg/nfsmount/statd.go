package nfsmount

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"
)

// statdRegistered asks the rpcbind of this network namespace whether rpc.statd
// runs (RFC 1833, PMAPPROC_GETPORT). NFSv3 locks go through the kernel's lockd,
// which refuses every lock (ENOLCK) while there is no statd to tell after a
// reboot who held them.
func statdRegistered(ctx context.Context) bool {
	const (
		statdProgram = 100024
		statdVersion = 1
	)
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
	port, err := getPort(conn, statdProgram, statdVersion)
	return err == nil && port != 0
}

// getPort makes one PMAPPROC_GETPORT call for a program over UDP, the transport
// on which the kernel's lockd talks to statd. Port 0 means not registered.
func getPort(rw io.ReadWriter, program, version uint32) (uint32, error) {
	const (
		xid, call, rpcVersion                 = 1, 0, 2
		portmapper, portmapperVersion, lookup = 100000, 2, 3
		authNone, ipprotoUDP                  = 0, 17
		lastFragment                          = 1 << 31
	)
	body := []uint32{
		xid, call, rpcVersion, portmapper, portmapperVersion, lookup,
		authNone, 0, authNone, 0, // credentials and verifier, both empty
		program, version, ipprotoUDP, 0,
	}
	request := binary.BigEndian.AppendUint32(nil, lastFragment|uint32(4*len(body)))
	for _, word := range body {
		request = binary.BigEndian.AppendUint32(request, word)
	}
	if _, err := rw.Write(request); err != nil {
		return 0, err
	}
	// Fragment header; xid, reply, accepted, verifier (2 words), success; port.
	var reply [8]uint32
	if err := binary.Read(rw, binary.BigEndian, &reply); err != nil {
		return 0, err
	}
	if reply[0] != lastFragment|28 || reply[1] != xid || reply[2] != 1 || reply[3] != 0 || reply[6] != 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return reply[7], nil
}
