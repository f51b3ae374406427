package volumes

import (
	"sync"
	"time"
)

// backlog is when to check unfinished volumes, by name.
type backlog struct {
	mu      sync.Mutex
	volumes map[string]backlogged
}

type backlogged struct {
	due time.Time
	// failing is the time of the first failed cleanup, zero for none.
	failing time.Time
}

// retain forgets the volumes without an entry.
func (b *backlog) retain(entries map[string][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.volumes {
		if _, found := entries[name]; !found {
			delete(b.volumes, name)
		}
	}
}

func (b *backlog) due(name string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !now.Before(b.volumes[name].due)
}

func (b *backlog) postpone(name string, due time.Time) {
	b.change(name, func(v *backlogged) { v.due = due })
}

func (b *backlog) succeeded(name string) {
	b.change(name, func(v *backlogged) { v.failing = time.Time{} })
}

// failed returns how long the cleanup of a volume has been failing. What happened
// before this process started does not count: the driver may just have been away.
func (b *backlog) failed(name string) (since time.Duration) {
	b.change(name, func(v *backlogged) {
		if v.failing.IsZero() {
			v.failing = time.Now()
		}
		since = time.Since(v.failing)
	})
	return since
}

func (b *backlog) change(name string, edit func(*backlogged)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.volumes == nil {
		b.volumes = map[string]backlogged{}
	}
	v := b.volumes[name]
	edit(&v)
	b.volumes[name] = v
}
