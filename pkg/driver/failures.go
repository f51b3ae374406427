package driver

import (
	"errors"
	"sync"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Reasons for unhealthy volumes and servers.
const (
	reasonUnreachable = "ServerUnreachable"
	reasonStale       = "StaleMount"
	reasonNotFound    = "ShareNotFound"
	reasonDenied      = "AccessDenied"
)

// reasonOf maps an error of a mount to a reason; "" if it tells nothing about the
// volume's health.
func reasonOf(err error) string {
	for _, r := range []struct {
		err    error
		reason string
	}{
		{volume.ErrUnreachable, reasonUnreachable},
		{volume.ErrStale, reasonStale},
		{volume.ErrShareNotFound, reasonNotFound},
		{volume.ErrAccessDenied, reasonDenied},
	} {
		if errors.Is(err, r.err) {
			return r.reason
		}
	}
	return ""
}

// failures remembers for a while why volumes could not be published.
type failures struct {
	mu   sync.Mutex
	last map[attempt]failure
}

type attempt struct{ id, target string }

type failure struct {
	err error
	at  time.Time
}

// failureMemory is longer than kubelet's longest backoff.
const failureMemory = 10 * time.Minute

// note records the error of a publish; success clears it.
func (f *failures) note(id, target string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for a, old := range f.last {
		if time.Since(old.at) > failureMemory || a == (attempt{id, target}) {
			delete(f.last, a)
		}
	}
	if err == nil || reasonOf(err) == "" {
		return
	}
	if f.last == nil {
		f.last = map[attempt]failure{}
	}
	f.last[attempt{id, target}] = failure{err, time.Now()}
}

// of is the last failure of the volume, at the target if one is given.
func (f *failures) of(id, target string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for a, failed := range f.last {
		if a.id == id && (target == "" || a.target == target) && time.Since(failed.at) <= failureMemory {
			return failed.err
		}
	}
	return nil
}
