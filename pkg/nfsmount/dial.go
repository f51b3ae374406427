package nfsmount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	portNFS     = "2049"
	portRPCBind = "111"
)

// prober finds an address at which a server answers before the kernel, which would
// wait for minutes, talks to it. A TCP connection is not enough: while one mount(2)
// waits for a server that accepts connections but stays silent, the kernel blocks
// the first mount of every other server of the same minor version
// (nfs4_match_client in fs/nfs/nfs4client.c).
type prober struct {
	dialer  net.Dialer
	timeout time.Duration
	rpcbind string // port
}

// question is an RPC call that a live server answers; name is for messages.
type question struct {
	name string
	put  func(net.Conn) error
}

func nullCall(p program) question {
	return question{
		name: fmt.Sprintf("an NFSv%d NULL call", p.version),
		put:  func(conn net.Conn) error { return ping(conn, p) },
	}
}

// find returns the server's address for addr=. Over TCP it is one that has just
// answered; for other transports it is the first that the name resolves to.
func (p *prober) find(ctx context.Context, server string, o Options) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	port, probe := o.probePort()
	family := o.family(server)
	if !probe {
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip"+family, server)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("resolve %s: %w: %w", server, volume.ErrUnreachable, err)
		}
		return addrs[0].Unmap(), nil
	}
	if port == portRPCBind {
		return p.askVersion3(ctx, server, family)
	}
	return p.ask(ctx, "tcp"+family, server, port, nullCall(program{programNFS, 4}))
}

// askVersion3 follows the kernel's path for version 3: the server's rpcbind, then the
// NFS service itself, which can be dead while rpcbind is alive. The kernel would wait
// for a service that is not registered, for example because it is stopped.
func (p *prober) askVersion3(ctx context.Context, server, family string) (netip.Addr, error) {
	var port uint32
	nfs := program{programNFS, 3}
	addr, err := p.ask(ctx, "tcp"+family, server, p.rpcbind, question{"an rpcbind GETPORT call for NFSv3", func(conn net.Conn) (err error) {
		if port, err = getPort(conn, nfs, ipprotoTCP); err == nil && port == 0 {
			err = errors.New("NFS version 3 is not registered there")
		}
		return err
	}})
	if err != nil {
		return addr, err
	}
	return p.ask(ctx, "tcp", addr.String(), strconv.FormatUint(uint64(port), 10), nullCall(nfs))
}

// ask connects and puts the question, until ctx ends.
func (p *prober) ask(ctx context.Context, network, server, port string, q question) (netip.Addr, error) {
	addr, err := p.connect(ctx, network, server, port, q)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("no answer from %s to %s (timeout %s): %w: %w",
			net.JoinHostPort(server, port), q.name, p.timeout, volume.ErrUnreachable, err)
	}
	return addr, nil
}

func (p *prober) connect(ctx context.Context, network, server, port string, q question) (netip.Addr, error) {
	conn, err := p.dialer.DialContext(ctx, network, net.JoinHostPort(server, port))
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := q.put(conn); err != nil {
		return netip.Addr{}, cmp.Or(ctx.Err(), err)
	}
	remote, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	return remote.Addr().Unmap(), err
}

// family is the address family in which to resolve the server's name: that of the
// netid in proto= or mountproto= (nfs(5)), or else any. Literal addresses are left for
// the kernel to judge.
func (o Options) family(server string) string {
	if _, err := netip.ParseAddr(server); err == nil {
		return ""
	}
	for _, name := range []string{"proto", "mountproto"} {
		if netid, ok := o.value(name); ok {
			if strings.HasSuffix(netid, "6") {
				return "6"
			}
			return "4"
		}
	}
	return ""
}

// probePort is the port on which a live server must listen, given these options.
func (o Options) probePort() (port string, probe bool) {
	proto, _ := o.value("proto")
	if _, ok := o.value("rdma", "udp"); ok || slices.Contains([]string{"rdma", "rdma6", "udp", "udp6"}, proto) {
		return "", false
	}
	if port, ok := o.value("port"); ok && port != "0" {
		return port, true
	}
	// For version 3 the kernel asks rpcbind for every port that no option gives.
	if _, given := o.value("mountport"); o.version.major == 3 && !given {
		return portRPCBind, true
	}
	return portNFS, true
}
