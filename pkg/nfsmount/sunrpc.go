package nfsmount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The part of ONC RPC (RFC 5531) over a stream that is needed for NULL calls and for
// asking an rpcbind for a port.

// program is an RPC program in one of its versions.
type program struct{ number, version uint32 }

const (
	procNull    = 0 // of every program: does nothing
	procGetPort = 3 // of the port mapper (RFC 1833)

	programNFS = 100003
	ipprotoTCP = 6
	ipprotoUDP = 17

	lastFragment = 1 << 31
	maxReply     = 4096
)

var errNotRPC = errors.New("the answer is not an RPC reply")

// callRPC makes one call without credentials and returns the words of the reply that
// follow the transaction ID.
func callRPC(rw io.ReadWriter, p program, proc uint32, args ...uint32) ([]uint32, error) {
	const xid, call, rpcVersion, authNone = 0x6e667363, 0, 2, 0
	body := append([]uint32{
		xid, call, rpcVersion, p.number, p.version, proc,
		authNone, 0, authNone, 0, // credentials and verifier, both empty
	}, args...)
	request := binary.BigEndian.AppendUint32(nil, lastFragment|uint32(4*len(body)))
	for _, word := range body {
		request = binary.BigEndian.AppendUint32(request, word)
	}
	if _, err := rw.Write(request); err != nil {
		return nil, err
	}
	var header uint32
	if err := binary.Read(rw, binary.BigEndian, &header); err != nil {
		return nil, err
	}
	size := header &^ lastFragment
	if header&lastFragment == 0 || size%4 != 0 || size < 8 || size > maxReply {
		return nil, errNotRPC
	}
	reply := make([]uint32, size/4)
	if err := binary.Read(rw, binary.BigEndian, reply); err != nil {
		return nil, err
	}
	if reply[0] != xid || reply[1] != 1 {
		return nil, errNotRPC
	}
	return reply[1:], nil
}

// ping makes a NULL call. A reply that rejects the version or the caller is an answer
// too.
func ping(rw io.ReadWriter, p program) error {
	_, err := callRPC(rw, p, procNull)
	return err
}

// getPort asks an rpcbind for the port of a program over a transport; 0 if it is not
// registered.
func getPort(rw io.ReadWriter, p program, transport uint32) (uint32, error) {
	reply, err := callRPC(rw, program{100000, 2}, procGetPort, p.number, p.version, transport, 0)
	if err != nil {
		return 0, err
	}
	// Reply, accepted, an empty verifier (2 words), success, and the port.
	if len(reply) != 6 || reply[1] != 0 || reply[4] != 0 {
		return 0, fmt.Errorf("rpcbind: %w", errNotRPC)
	}
	return reply[5], nil
}
