package nfsmount

import (
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	// flavorSys is AUTH_SYS, as sec= names it.
	flavorSys = "sys"
	// flavorTime is how long the kernel's choice of AUTH_SYS for a share is reused: a
	// node that gets Kerberos later uses it for the share after at most this time.
	flavorTime = 10 * time.Minute
)

// flavors remembers the shares for which the kernel negotiated AUTH_SYS. The kernel
// negotiates at every NFSv4 mount without sec=, and runs modprobe(8) for each Kerberos
// flavor that the server lists, loaded or not: most of the time of such a mount. The
// zero value is ready to use.
type flavors struct {
	mu    sync.Mutex
	until map[volume.Export]time.Time
}

func (f *flavors) isSys(e volume.Export, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return now.Before(f.until[e])
}

// learn records the flavor that the kernel negotiated for a mount.
func (f *flavors) learn(e volume.Export, flavor string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.until, func(_ volume.Export, until time.Time) bool { return !now.Before(until) })
	if flavor != flavorSys {
		return
	}
	if f.until == nil {
		f.until = map[volume.Export]time.Time{}
	}
	f.until[e] = now.Add(flavorTime)
}

func (f *flavors) forget(e volume.Export) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.until, e)
}

// flavorError tells whether the server may require another security flavor.
func flavorError(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// flavorAt is the value of sec= of the topmost mount at target, empty when unknown.
func flavorAt(target string) string {
	info, err := infoAt(target)
	if err != nil || info == nil {
		return ""
	}
	top := Options{data: splitOptions(info.VFSOptions)}
	flavor, _ := top.value("sec")
	return flavor
}
