package nfsmount

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// version of the NFS protocol. Major 0 and minor anyMinor are unspecified.
type version struct {
	major int
	minor int
}

const anyMinor = -1

func (v version) String() string {
	switch {
	case v.major == 0:
		return "vers=any"
	case v.major == 3 || v.minor == anyMinor:
		return fmt.Sprintf("vers=%d", v.major)
	}
	return fmt.Sprintf("vers=%d.%d", v.major, v.minor)
}

func (v version) fsType() string {
	if v.major == 4 {
		return "nfs4"
	}
	return "nfs"
}

// candidates are the versions to try, best first (nfs(5), "nfsvers": the client
// negotiates down from 4.2).
func (v version) candidates() []version {
	v4 := []version{{4, 2}, {4, 1}, {4, 0}}
	switch {
	case v.major == 0:
		return append(v4, version{major: 3})
	case v.major == 4 && v.minor == anyMinor:
		return v4
	}
	return []version{v}
}

// parseVersionOption reads the spellings of the version: vers=, nfsvers=, v3, v4.1,
// minorversion=. ok tells whether opt is one of them.
func parseVersionOption(now version, opt string) (v version, ok bool, err error) {
	name, value, _ := strings.Cut(opt, "=")
	switch {
	case name == "vers" || name == "nfsvers":
	case name == "minorversion":
		minor, err := strconv.ParseUint(value, 10, 4)
		if err != nil || minor > 2 {
			return now, true, fmt.Errorf("%w: known minor versions are 0, 1, 2", volume.ErrMountOptions)
		}
		return version{4, int(minor)}, true, nil
	case strings.HasPrefix(opt, "v3") || strings.HasPrefix(opt, "v4"):
		value = opt[1:]
	default:
		return now, false, nil
	}
	known := map[string]version{
		"3": {major: 3}, "4": {4, anyMinor}, "4.0": {4, 0}, "4.1": {4, 1}, "4.2": {4, 2},
	}
	v, found := known[value]
	if !found {
		return now, true, fmt.Errorf("%w: known versions are 3, 4, 4.0, 4.1, 4.2", volume.ErrMountOptions)
	}
	// minorversion=1,vers=4 asks for 4.1 in either order.
	if v.minor == anyMinor && now.major == 4 {
		v = now
	}
	return v, true, nil
}

// nextAttempt is the index of the candidate to try after tried[at] failed with err, or
// false if there is none.
func nextAttempt(tried []version, at int, err error) (int, bool) {
	switch {
	case at+1 >= len(tried):
		return 0, false
	case versionError(err):
		return at + 1, true
	// A server may export different paths in version 4, below its pseudo root, than in
	// version 3.
	case errors.Is(err, unix.ENOENT):
		last := len(tried) - 1
		return last, tried[last].major == 3
	}
	return 0, false
}

// versionError tells whether the server or this kernel may not support the version.
func versionError(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV)
}
