package nfsmount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	portNFS     = "2049"
	portRPCBind = "111"
)

// prober finds out which address of a server answers, before the kernel, which
// would wait for minutes, is asked to talk to it. It asks for more than a
// connection: while one mount(2) waits for a server that took the connection
// and says nothing, the kernel holds up the first mount of every other server
// that is spoken to in the same minor version (nfs4_match_client in
// fs/nfs/nfs4client.c waits for it).
type prober struct {
	dialer  net.Dialer
	timeout time.Duration
	rpcbind string // port
}

// find returns the address of the server to put into addr=. Over TCP it is one
// that has just taken a connection; for other transports it is the first that
// the name resolves to.
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
	return p.ask(ctx, "tcp"+family, server, port, func(conn net.Conn) error { return ping(conn, program{programNFS, 4}) })
}

// askVersion3 goes the way that the kernel goes for version 3: to the server's
// rpcbind, and then to the NFS server itself, which can be dead alone. One that
// is not registered, as while it is stopped, is what the kernel would wait for.
func (p *prober) askVersion3(ctx context.Context, server, family string) (netip.Addr, error) {
	var port uint32
	nfs := program{programNFS, 3}
	addr, err := p.ask(ctx, "tcp"+family, server, p.rpcbind, func(conn net.Conn) (err error) {
		if port, err = getPort(conn, nfs, ipprotoTCP); err == nil && port == 0 {
			err = errors.New("NFS version 3 is not registered there")
		}
		return err
	})
	if err != nil {
		return addr, err
	}
	return p.ask(ctx, "tcp", addr.String(), strconv.FormatUint(uint64(port), 10), func(conn net.Conn) error { return ping(conn, nfs) })
}

// ask connects and lets question use the connection until ctx ends.
func (p *prober) ask(ctx context.Context, network, server, port string, question func(net.Conn) error) (netip.Addr, error) {
	began := time.Now()
	addr, err := p.connect(ctx, network, server, port, question)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("no answer from %s within %s: %w: %w",
			net.JoinHostPort(server, port), time.Since(began).Round(time.Millisecond), volume.ErrUnreachable, err)
	}
	return addr, nil
}

func (p *prober) connect(ctx context.Context, network, server, port string, question func(net.Conn) error) (netip.Addr, error) {
	conn, err := p.dialer.DialContext(ctx, network, net.JoinHostPort(server, port))
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := question(conn); err != nil {
		return netip.Addr{}, cmp.Or(ctx.Err(), err)
	}
	remote, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	return remote.Addr().Unmap(), err
}

// family is which addresses of a server's name the kernel takes: with proto= or
// mountproto= those that the netid is of (nfs(5)), without them any. An address that is
// given as such it judges itself.
func (o Options) family(server string) string {
	if _, err := netip.ParseAddr(server); err == nil {
		return ""
	}
	for _, name := range []string{"proto", "mountproto"} {
		if netid, said := o.value(name); said {
			if strings.HasSuffix(netid, "6") {
				return "6"
			}
			return "4"
		}
	}
	return ""
}

// probePort is where a server that is alive must listen given these options.
func (o Options) probePort() (port string, probe bool) {
	proto, _ := o.value("proto")
	if _, ok := o.value("rdma"); ok || proto == "rdma" || proto == "rdma6" {
		return "", false
	}
	if _, ok := o.value("udp"); ok || proto == "udp" || proto == "udp6" {
		return "", false
	}
	if port, ok := o.value("port"); ok && port != "0" {
		return port, true
	}
	// For version 3 the kernel asks rpcbind for every port it was not told.
	if _, told := o.value("mountport"); o.version.major == 3 && !told {
		return portRPCBind, true
	}
	return portNFS, true
}
