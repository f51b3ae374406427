package nfsmount

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Mounts implements Mounter.
func (k *Kernel) Mounts(context.Context) ([]Entry, error) {
	infos, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	entries := make([]Entry, 0, len(infos))
	for _, i := range infos {
		entries = append(entries, entryOf(i))
	}
	return entries, nil
}

func entryOf(i *mountinfo.Info) Entry {
	e := Entry{Target: i.Mountpoint, Source: i.Source, FSType: i.FSType, Root: i.Root}
	for _, opt := range splitOptions(i.Options) {
		e.ReadOnly = e.ReadOnly || opt == "ro"
	}
	if e.IsNFS() {
		e.Server = serverOf(i)
	}
	return e
}

// serverOf is what the kernel shows as the address that it talks to, or else
// the host part of the source.
func serverOf(i *mountinfo.Info) string {
	options := Options{data: splitOptions(i.VFSOptions)}
	addr, _ := options.value("addr")
	port, _ := options.value("port")
	if addr == "" {
		addr = hostOf(i.Source)
	}
	if port == "" || port == "0" || port == portNFS {
		return addr
	}
	return net.JoinHostPort(addr, port)
}

// hostOf is the server in "server:/path" or "[address]:/path".
func hostOf(source string) string {
	if in, ok := strings.CutPrefix(source, "["); ok {
		host, _, _ := strings.Cut(in, "]")
		return host
	}
	host, _, _ := strings.Cut(source, ":")
	return host
}
