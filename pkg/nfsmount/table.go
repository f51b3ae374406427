package nfsmount

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// maxLine of the mount table: overlays with many layers have long lines.
const maxLine = 1 << 20

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
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	info, err := lastAt(table, target)
	if err = errors.Join(err, table.Close()); err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return info, nil
}

// lastAt parses only lines that may match target: parsing hundreds of mounts takes
// longer than mounting one.
func lastAt(table io.Reader, target string) (*mountinfo.Info, error) {
	var lines bytes.Buffer
	all := bufio.NewScanner(table)
	all.Buffer(nil, maxLine)
	all.Split(wholeLines)
	for all.Scan() {
		if mayBeAt(all.Bytes(), target) {
			lines.Write(all.Bytes())
		}
	}
	if err := all.Err(); err != nil {
		return nil, err
	}
	infos, err := mountinfo.GetMountsFromReader(&lines, func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint != target, false
	})
	if err != nil || len(infos) == 0 {
		return nil, err
	}
	return infos[len(infos)-1], nil
}

// wholeLines is bufio.ScanLines that keeps the newlines.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	end := bytes.IndexByte(data, '\n') + 1
	if end == 0 && atEOF {
		end = len(data)
	}
	if end == 0 {
		return 0, nil, nil
	}
	return end, data[:end], nil
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
	for _, opt := range splitOptions(i.Options) {
		e.ReadOnly = e.ReadOnly || opt == "ro"
	}
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
