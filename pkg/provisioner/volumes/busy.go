package volumes

import (
	"errors"
	"sync"
	"time"
)

var errBusy = errors.New("another try for the same volume is under way")

// busy are the volumes that are being worked on, by name.
type busy struct {
	mu    sync.Mutex
	names map[string]bool
}

// start returns false if the volume is being worked on already.
func (b *busy) start(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names[name] {
		return false
	}
	if b.names == nil {
		b.names = map[string]bool{}
	}
	b.names[name] = true
	return true
}

func (b *busy) end(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.names, name)
}

// recentPeriod is longer than the lag of any cache.
const recentPeriod = 10 * time.Minute

// recent remembers names for at least recentPeriod.
type recent struct {
	mu    sync.Mutex
	names map[string]time.Time
	next  time.Time // of the next expiry
}

func (r *recent) add(name string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names == nil {
		r.names = map[string]time.Time{}
	}
	if now.After(r.next) {
		for old, since := range r.names {
			if now.Sub(since) > recentPeriod {
				delete(r.names, old)
			}
		}
		r.next = now.Add(recentPeriod)
	}
	r.names[name] = now
}

func (r *recent) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, found := r.names[name]
	return found
}

func (r *recent) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.names, name)
}
