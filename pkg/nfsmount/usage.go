package nfsmount

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// usages are the statfs(2) calls in flight.
type usages struct {
	flights[Usage]
	mu    sync.Mutex
	asked map[Entry]time.Time
}

// Usage implements Mounter.
func (k *Kernel) Usage(ctx context.Context, e Entry) (Usage, error) {
	u, err := k.usage(ctx, e)
	if err == nil {
		return u, nil
	}
	return Usage{}, fmt.Errorf("ask %s (%s) for the file system at %s: %w", e.Server, e.Source, e.Target, usageError(err))
}

// usageError adds to an error of statfs(2) its meaning. Only unrecoverable errors count
// as stale: on a soft mount, a server that is down for a while gives EIO, and pods must
// not lose the mount for that.
func usageError(err error) error {
	var kind error
	switch {
	case errors.Is(err, errNoAnswer), errors.Is(err, unix.EIO), errors.Is(err, unix.ETIMEDOUT),
		errors.Is(err, unix.EHOSTDOWN), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EAGAIN):
		kind = volume.ErrUnreachable
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		kind = volume.ErrAccessDenied
	case mountutils.IsCorruptedMnt(err):
		kind = volume.ErrStale
	default:
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

func (k *Kernel) usage(ctx context.Context, e Entry) (Usage, error) {
	if other, since, ok := k.usages.owed(e); ok && since >= k.cfg.AnswerTimeout {
		return Usage{}, fmt.Errorf("%w: statfs(%s) for %s", errNoAnswer, other.Target, since.Round(time.Second))
	}
	began := time.Now() // before the thread is scheduled: later callers count from here
	return k.usages.do(ctx, "statfs("+e.Target+")", k.cfg.AnswerTimeout, func() (Usage, error) {
		defer k.usages.ask(e, began)()
		return k.sys.statfs(e.Target)
	})
}

// ask records a question to a server until it is answered.
func (u *usages) ask(e Entry, began time.Time) (answered func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.asked == nil {
		u.asked = map[Entry]time.Time{}
	}
	u.asked[e] = began
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.asked, e)
	}
}

// owed finds the oldest unanswered question about another mount of the server of e.
// One blocked thread per server is enough.
func (u *usages) owed(e Entry) (oldest Entry, since time.Duration, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for other, began := range u.asked {
		if e.Server != "" && other.Server == e.Server && other.Target != e.Target {
			if waited := time.Since(began); waited > since {
				oldest, since, ok = other, waited, true
			}
		}
	}
	return oldest, since, ok
}

func statfs(target string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return Usage{}, err
	}
	return UsageOf(st), nil
}

// UsageOf converts the result of statfs(2). Blocks are counted in f_frsize, which for
// NFS is f_bsize. What is reserved for root is free but not available.
func UsageOf(st unix.Statfs_t) Usage {
	unit := uint64(max(st.Frsize, 1))
	return Usage{
		Bytes:  Amount{times(st.Blocks, unit), times(st.Blocks-min(st.Bfree, st.Blocks), unit), times(st.Bavail, unit)},
		Inodes: Amount{times(st.Files, 1), times(st.Files-min(st.Ffree, st.Files), 1), times(st.Ffree, 1)},
	}
}

// times multiplies, capped at the largest number in CSI: file systems without a limit
// report numbers near the maximum.
func times(n, unit uint64) int64 {
	if n > math.MaxInt64/unit {
		return math.MaxInt64
	}
	return int64(n * unit)
}
