package copyjob

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// MaxActive is how many copies from one server to another work at a time.
	MaxActive = 8
	// maxStarted bounds the copies that have started and not ended, including those that
	// have lent their slot: each holds memory, descriptors and threads.
	maxStarted = 32
	// stuckAfter is how long a copy without progress keeps its slot from others.
	stuckAfter = time.Minute
	// timeSlice is how long a copy keeps its slot from volumes that have fewer.
	timeSlice = 30 * time.Second
)

// slots bound how many copies work at a time between two servers. A free slot goes to
// the volume that has the fewest, and among those to the least recently served one:
// many copies of one volume do not hold up those of another.
type slots struct {
	mu     sync.Mutex
	routes map[string]*route
}

func newSlots() *slots { return &slots{routes: map[string]*route{}} }

// route is the copies between two servers.
type route struct {
	servers string
	copies  []*slot  // in order of arrival
	served  []string // volumes, the least recently served first
}

type slotState int

const (
	slotWaiting slotState = iota
	slotActive
	// slotLent to another copy, since this one made no progress.
	slotLent
)

// slot of one copy. The fields from state on are guarded by slots.mu.
type slot struct {
	slots  *slots
	route  *route
	volume string
	moves  func() int64 // changes with progress

	state   slotState
	started bool          // had a slot before
	granted chan struct{} // closed when a waiting copy gets its slot
	since   time.Time     // the state is slotActive
	// seen is what moves returned at seenAt.
	seen   int64
	seenAt time.Time
}

// join queues a copy of a volume for a slot.
func (s *slots) join(servers, volume string, moves func() int64) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.routes[servers]
	if r == nil {
		r = &route{servers: servers}
		s.routes[servers] = r
	}
	c := &slot{slots: s, route: r, volume: volume, moves: moves}
	r.copies = append(r.copies, c)
	if !slices.Contains(r.served, volume) {
		r.served = append(r.served, volume)
	}
	c.queue()
	return c
}

// leave releases the slot, or stops waiting for it.
func (c *slot) leave() {
	s, r := c.slots, c.route
	s.mu.Lock()
	defer s.mu.Unlock()
	r.copies = slices.DeleteFunc(r.copies, func(other *slot) bool { return other == c })
	if !slices.ContainsFunc(r.copies, func(other *slot) bool { return other.volume == c.volume }) {
		r.served = slices.DeleteFunc(r.served, func(volume string) bool { return volume == c.volume })
	}
	r.grant()
	if len(r.copies) == 0 {
		delete(s.routes, r.servers)
	}
}

func (c *slot) queue() {
	c.state, c.granted = slotWaiting, make(chan struct{})
	c.route.grant()
}

// wait until the slot is granted or ctx ends.
func (c *slot) wait(ctx context.Context) error {
	c.slots.mu.Lock()
	granted := c.granted
	c.slots.mu.Unlock()
	look := time.NewTicker(stuckAfter / 4)
	defer look.Stop()
	for {
		select {
		case <-granted:
			return ctx.Err()
		case <-look.C:
			c.slots.lend(c.route)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pause is called by a copy between steps. It waits while another copy has the slot:
// because this one made no progress, or because its time slice is over and a volume
// with fewer slots waits.
func (c *slot) pause(ctx context.Context) error {
	s := c.slots
	s.mu.Lock()
	if c.state == slotLent || c.state == slotActive && time.Since(c.since) >= timeSlice && c.unfair() {
		c.queue()
	}
	waiting := c.state == slotWaiting
	s.mu.Unlock()
	if waiting {
		return c.wait(ctx)
	}
	return ctx.Err()
}

// unfair reports whether a volume with fewer slots waits.
func (c *slot) unfair() bool {
	next := c.route.next()
	if next == nil {
		return false
	}
	active := c.route.active()
	return active[next.volume] < active[c.volume]
}

// grant assigns free slots.
func (r *route) grant() {
	for {
		total := 0
		for _, n := range r.active() {
			total += n
		}
		c := r.next()
		if total >= MaxActive || c == nil {
			return
		}
		c.state, c.started, c.since = slotActive, true, time.Now()
		c.seen, c.seenAt = c.moves(), c.since
		r.served = append(slices.DeleteFunc(r.served, func(volume string) bool { return volume == c.volume }), c.volume)
		close(c.granted)
	}
}

// active is how many slots each volume has.
func (r *route) active() map[string]int {
	n := map[string]int{}
	for _, c := range r.copies {
		if c.state == slotActive {
			n[c.volume]++
		}
	}
	return n
}

// next is the copy that gets the next free slot, nil if none waits.
func (r *route) next() *slot {
	started := 0
	for _, c := range r.copies {
		if c.started {
			started++
		}
	}
	first := map[string]*slot{} // of each volume, preferably one that has started
	for _, c := range r.copies {
		if have := first[c.volume]; c.state == slotWaiting && (c.started || started < maxStarted) && (have == nil || c.started && !have.started) {
			first[c.volume] = c
		}
	}
	var best *slot
	active := r.active()
	for _, volume := range r.served {
		if c := first[volume]; c != nil && (best == nil || active[volume] < active[best.volume]) {
			best = c
		}
	}
	return best
}

// lend takes the slots of stuck copies for copies that wait.
func (s *slots) lend(r *route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.next() == nil {
		return
	}
	for _, c := range r.copies {
		if c.state != slotActive {
			continue
		}
		if n := c.moves(); n != c.seen {
			c.seen, c.seenAt = n, time.Now()
		} else if time.Since(c.seenAt) >= stuckAfter {
			c.state = slotLent
		}
	}
	r.grant()
}

// String describes what the copy waits for, empty if it does not wait.
func (c *slot) String() string {
	if c == nil {
		return ""
	}
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	if c.state != slotWaiting {
		return ""
	}
	total, waiting := 0, 0
	for _, other := range c.route.copies {
		switch other.state {
		case slotActive:
			total++
		case slotWaiting:
			waiting++
		}
	}
	return fmt.Sprintf("waiting for a slot: %d copies work from %s, %d wait", total, c.route.servers, waiting)
}
