package nfsmount

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Options are parsed mount options: the flags of mount(2), the protocol version, and
// the options for the kernel's NFS client. The zero value is a mount with all defaults.
type Options struct {
	flags   uintptr
	version version
	data    []string
}

// flag is the effect of a generic option (mount(8), "filesystem-independent mount
// options") on the flags of mount(2).
type flag struct{ set, clear uintptr }

func genericFlag(name string) (flag, bool) {
	const atime = unix.MS_NOATIME | unix.MS_RELATIME | unix.MS_STRICTATIME
	f, ok := map[string]flag{
		"ro":            {set: unix.MS_RDONLY},
		"rw":            {clear: unix.MS_RDONLY},
		"nosuid":        {set: unix.MS_NOSUID},
		"suid":          {clear: unix.MS_NOSUID},
		"nodev":         {set: unix.MS_NODEV},
		"dev":           {clear: unix.MS_NODEV},
		"noexec":        {set: unix.MS_NOEXEC},
		"exec":          {clear: unix.MS_NOEXEC},
		"sync":          {set: unix.MS_SYNCHRONOUS},
		"async":         {clear: unix.MS_SYNCHRONOUS},
		"dirsync":       {set: unix.MS_DIRSYNC},
		"noatime":       {set: unix.MS_NOATIME, clear: atime},
		"atime":         {clear: unix.MS_NOATIME},
		"nodiratime":    {set: unix.MS_NODIRATIME},
		"diratime":      {clear: unix.MS_NODIRATIME},
		"relatime":      {set: unix.MS_RELATIME, clear: atime},
		"norelatime":    {clear: unix.MS_RELATIME},
		"strictatime":   {set: unix.MS_STRICTATIME, clear: atime},
		"nostrictatime": {clear: unix.MS_STRICTATIME},
		"lazytime":      {set: unix.MS_LAZYTIME},
		"nolazytime":    {clear: unix.MS_LAZYTIME},
		"nosymfollow":   {set: unix.MS_NOSYMFOLLOW},
		"symfollow":     {clear: unix.MS_NOSYMFOLLOW},
		"silent":        {set: unix.MS_SILENT},
		"loud":          {clear: unix.MS_SILENT},
	}[name]
	return f, ok
}

// ParseOptions reads options as StorageClasses and PVs carry them: a list whose
// elements are single options or comma-separated ones. The later of two contradicting
// options wins. Options of the kernel's NFS client are left for the kernel to judge.
// Of those that only mount.nfs or mount(8) know, the ones without effect here are
// dropped, and the others are refused by name.
//
// Errors: volume.ErrMountOptions.
func ParseOptions(list []string) (Options, error) {
	var o Options
	for _, element := range list {
		for _, opt := range splitOptions(element) {
			if err := o.add(strings.TrimSpace(opt)); err != nil {
				return Options{}, fmt.Errorf("mount option %q: %w", opt, err)
			}
		}
	}
	return o, nil
}

// splitOptions splits at commas outside double quotes, which SELinux contexts
// (context="...:c1,c2") need.
func splitOptions(s string) []string {
	quoted := false
	return strings.FieldsFunc(s, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ',' && !quoted
	})
}

// checkQuotes allows quotes only where the kernel parses them: in SELinux contexts.
// Without SELinux the kernel splits at the commas inside them too, so they must not
// hide an option with a value.
func checkQuotes(name, value string) error {
	if !strings.Contains(name+value, `"`) {
		return nil
	}
	switch name {
	case "context", "fscontext", "defcontext", "rootcontext":
		if regexp.MustCompile(`^"[A-Za-z0-9_:.,-]+"$`).MatchString(value) {
			return nil
		}
	}
	return fmt.Errorf("%w: quotes are for SELinux contexts", volume.ErrMountOptions)
}

func (o *Options) add(opt string) error {
	name, value, _ := strings.Cut(opt, "=")
	if strings.ContainsAny(opt, "\x00\n") {
		return fmt.Errorf("%w: control character", volume.ErrMountOptions)
	}
	if err := checkQuotes(name, value); err != nil {
		return err
	}
	if f, ok := genericFlag(opt); ok {
		o.flags = o.flags&^f.clear | f.set
		return nil
	}
	if v, ok, err := parseVersionOption(o.version, opt); ok || err != nil {
		o.version = v
		return err
	}
	if needless(name) {
		return nil
	}
	if why := refused(name); why != "" {
		return fmt.Errorf("%w: %s", volume.ErrMountOptions, why)
	}
	if err := checkValue(name, value); err != nil {
		return err
	}
	if name == "sec" { // the kernel would accept the flavors of all of them
		o.data = slices.DeleteFunc(o.data, func(have string) bool { return strings.HasPrefix(have, "sec=") })
	}
	o.data = append(o.data, opt)
	return nil
}

// needless are options for fstab, for mount(8), and for the retries of mount.nfs; the
// driver's callers retry anyway.
func needless(name string) bool {
	switch name {
	case "", "defaults", "fg", "bg", "retry", "_netdev", "nofail", "auto", "noauto", "comment",
		"user", "nouser", "users", "owner", "noowner", "group", "nogroup",
		"quota", "noquota", "usrquota", "grpquota":
		return true
	}
	return strings.HasPrefix(name, "x-") || strings.HasPrefix(name, "X-")
}

// refused says why an option cannot be honoured, or "".
func refused(name string) string {
	switch name {
	case "addr":
		return "the driver resolves the address; put it into server"
	case "mounthost":
		return "only mount.nfs resolves names; use mountaddr with an IP address"
	case "remount", "bind", "rbind", "move", "loop",
		"shared", "rshared", "private", "rprivate", "slave", "rslave", "unbindable", "runbindable":
		return "not an option of a new NFS mount"
	}
	return ""
}

func checkValue(name, value string) error {
	switch name {
	case "port", "mountport":
		if _, err := strconv.ParseUint(value, 10, 16); err != nil {
			return fmt.Errorf("%w: not a port number", volume.ErrMountOptions)
		}
	case "clientaddr", "mountaddr":
		if _, err := netip.ParseAddr(value); err != nil {
			return fmt.Errorf("%w: not an IP address", volume.ErrMountOptions)
		}
	}
	return nil
}

// ReadOnly tells whether the mount refuses writes.
func (o Options) ReadOnly() bool { return o.flags&unix.MS_RDONLY != 0 }

// String is equal for options that give the same mount. The order of flags does not
// matter, that of NFS options does.
func (o Options) String() string {
	return fmt.Sprintf("%s,flags=%#x,%s", o.version, o.flags, strings.Join(o.data, ","))
}

// value returns the last value given for one of the names.
func (o Options) value(names ...string) (string, bool) {
	for i := len(o.data) - 1; i >= 0; i-- {
		got, value, _ := strings.Cut(o.data[i], "=")
		if slices.Contains(names, got) {
			return value, true
		}
	}
	return "", false
}
