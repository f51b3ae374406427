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
	// flavorTime is how long a share is taken for one that has AUTH_SYS: so late may
	// it be that a node which comes to have Kerberos uses it there.
	flavorTime = 10 * time.Minute
)

// flavors remembers the shares for which the kernel has found AUTH_SYS to be the
// security flavor. It looks at every NFSv4 mount that does not say sec=, and runs
// modprobe(8) for each Kerberos flavor in the server's list, also for those it has:
// most of what such a mount takes. The zero value is ready to use.
type flavors struct {
	mu    sync.Mutex
	until map[volume.Export]time.Time
}

func (f *flavors) isSys(e volume.Export, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return now.Before(f.until[e])
}

// learn is of a mount for which the kernel has looked.
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

// flavorError tells whether the server may want another security flavor.
func flavorError(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// flavorAt is what sec= would have to say for the mount that is seen at target,
// empty when that is not known.
func flavorAt(target string) string {
	info, err := infoAt(target)
	if err != nil || info == nil {
		return ""
	}
	top := Options{data: splitOptions(info.VFSOptions)}
	flavor, _ := top.value("sec")
	return flavor
}
