package nfsmount

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
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

// MountAt implements Mounter.
func (k *Kernel) MountAt(_ context.Context, target string) (Entry, bool, error) {
	if isPlain(target) {
		return Entry{}, false, nil
	}
	info, err := infoAt(target)
	if err != nil || info == nil {
		return Entry{}, false, err
	}
	return entryOf(info), true, nil
}

// isPlain tells whether target exists and is no mount point, without access to a mounted
// file system: openat2(2) stops at the mount point. False may also mean unknown.
func isPlain(target string) bool {
	dir, err := unix.Open(filepath.Dir(target), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dir) //nolint:errcheck // nothing is written
	fd, err := unix.Openat2(dir, filepath.Base(target), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// infoAt is the last mount at target, nil if there is none.
func infoAt(target string) (*mountinfo.Info, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	info, err := lastAt(table, target)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return info, nil
}

// lastAt parses only lines that may match target: parsing hundreds of mounts takes
// longer than mounting one.
func lastAt(table []byte, target string) (*mountinfo.Info, error) {
	var lines bytes.Buffer
	for line := range bytes.Lines(table) {
		if mayBeAt(line, target) {
			lines.Write(line)
		}
	}
	infos, err := mountinfo.GetMountsFromReader(&lines, func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint != target, false
	})
	if err != nil || len(infos) == 0 {
		return nil, err
	}
	return infos[len(infos)-1], nil
}

// mayBeAt looks at the mount point in a line of the mount table, the fifth field
// (proc_pid_mountinfo(5)). A mount point with escaped characters may be any.
func mayBeAt(line []byte, target string) bool {
	point := line
	for range 4 {
		_, point, _ = bytes.Cut(point, []byte(" "))
	}
	point, _, ok := bytes.Cut(point, []byte(" "))
	return !ok || string(point) == target || bytes.IndexByte(point, '\\') >= 0
}

func entryOf(i *mountinfo.Info) Entry {
	e := Entry{Target: i.Mountpoint, Source: i.Source, FSType: i.FSType, Root: i.Root}
	e.ReadOnly = slices.Contains(splitOptions(i.Options), "ro")
	if e.IsNFS() {
		e.Server = serverOf(i)
	}
	return e
}

// serverOf is the server address in the mount table, or else the host part of the
// source.
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
