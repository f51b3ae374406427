package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// copiesAtATime is how many copies work at a time from one server to another.
	copiesAtATime = 8
	// copiesBegun bounds how many have begun and not ended, with those that have lost
	// their slot for a while: each holds memory, descriptors and threads.
	copiesBegun = 32
	// stuckAfter is how long a copy without any progress keeps its slot from others.
	stuckAfter = time.Minute
	// slotFor is how long a copy keeps its slot from volumes that have fewer.
	slotFor = 30 * time.Second
)

// slots let so many copies work at a time between two servers. A free slot goes to the
// volume that has the fewest, and among those to the one that was served least
// recently: many copies of one volume do not hold up another's.
type slots struct {
	limit, begun int
	stuck, turn  time.Duration

	mu sync.Mutex
	of map[string]*pool
}

func newSlots() *slots {
	return &slots{limit: copiesAtATime, begun: copiesBegun, stuck: stuckAfter, turn: slotFor, of: map[string]*pool{}}
}

// pool is what there is between two servers.
type pool struct {
	servers string
	copies  []*slot  // in the order in which they came
	served  []string // volumes, the least recently served first
}

type slotState int

const (
	slotWaits slotState = iota
	slotWorks
	// slotLent: there was no progress, and another copy has the slot.
	slotLent
)

// slot of one copy. All but the constants are guarded by slots.mu.
type slot struct {
	slots  *slots
	pool   *pool
	volume string
	moves  func() int64 // another value whenever there was progress

	state   slotState
	begun   bool          // it had a slot before
	granted chan struct{} // of a copy that waits, closed when it gets its slot
	since   time.Time     // it works
	// seen is what moves returned at a time.
	seen   int64
	seenAt time.Time
}

// join has a copy of a volume wait for a slot.
func (s *slots) join(servers, volume string, moves func() int64) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of[servers]
	if p == nil {
		p = &pool{servers: servers}
		s.of[servers] = p
	}
	c := &slot{slots: s, pool: p, volume: volume, moves: moves}
	p.copies = append(p.copies, c)
	if !slices.Contains(p.served, volume) {
		p.served = append(p.served, volume)
	}
	c.queue()
	return c
}

// leave gives the slot back, or gives up waiting for it.
func (c *slot) leave() {
	s, p := c.slots, c.pool
	s.mu.Lock()
	defer s.mu.Unlock()
	p.copies = slices.DeleteFunc(p.copies, func(other *slot) bool { return other == c })
	if !slices.ContainsFunc(p.copies, func(other *slot) bool { return other.volume == c.volume }) {
		p.served = slices.DeleteFunc(p.served, func(volume string) bool { return volume == c.volume })
	}
	s.grant(p)
	if len(p.copies) == 0 {
		delete(s.of, p.servers)
	}
}

func (c *slot) queue() {
	c.state, c.granted = slotWaits, make(chan struct{})
	c.slots.grant(c.pool)
}

// wait until the copy has its slot, or until ctx ends.
func (c *slot) wait(ctx context.Context) error {
	c.slots.mu.Lock()
	granted := c.granted
	c.slots.mu.Unlock()
	look := time.NewTicker(c.slots.stuck / 4)
	defer look.Stop()
	for {
		select {
		case <-granted:
			return ctx.Err()
		case <-look.C:
			c.slots.lend(c.pool)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pause is for a copy to call now and then. It waits while the slot is another's: one
// that was lent while there was no progress, or one that a volume with fewer slots
// has waited for long enough.
func (c *slot) pause(ctx context.Context) error {
	s := c.slots
	s.mu.Lock()
	if c.state == slotLent || c.state == slotWorks && time.Since(c.since) >= s.turn && c.unfair() {
		c.queue()
	}
	waits := c.state == slotWaits
	s.mu.Unlock()
	if waits {
		return c.wait(ctx)
	}
	return ctx.Err()
}

// unfair tells whether a volume with fewer slots waits.
func (c *slot) unfair() bool {
	next := c.slots.next(c.pool)
	if next == nil {
		return false
	}
	work := c.pool.working()
	return work[next.volume] < work[c.volume]
}

// grant gives free slots away.
func (s *slots) grant(p *pool) {
	for {
		total := 0
		for _, n := range p.working() {
			total += n
		}
		c := s.next(p)
		if total >= s.limit || c == nil {
			return
		}
		c.state, c.begun, c.since = slotWorks, true, time.Now()
		c.seen, c.seenAt = c.moves(), c.since
		p.served = append(slices.DeleteFunc(p.served, func(volume string) bool { return volume == c.volume }), c.volume)
		close(c.granted)
	}
}

// working is how many slots each volume has.
func (p *pool) working() map[string]int {
	n := map[string]int{}
	for _, c := range p.copies {
		if c.state == slotWorks {
			n[c.volume]++
		}
	}
	return n
}

// next is the copy that a free slot is for, nil if there is none.
func (s *slots) next(p *pool) *slot {
	begun := 0
	for _, c := range p.copies {
		if c.begun {
			begun++
		}
	}
	first := map[string]*slot{} // of each volume; one that has begun before
	for _, c := range p.copies {
		if have := first[c.volume]; c.state == slotWaits && (c.begun || begun < s.begun) && (have == nil || c.begun && !have.begun) {
			first[c.volume] = c
		}
	}
	var best *slot
	work := p.working()
	for _, volume := range p.served {
		if c := first[volume]; c != nil && (best == nil || work[volume] < work[best.volume]) {
			best = c
		}
	}
	return best
}

// lend takes the slots of copies that are stuck.
func (s *slots) lend(p *pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next(p) == nil {
		return
	}
	for _, c := range p.copies {
		if c.state != slotWorks {
			continue
		}
		if n := c.moves(); n != c.seen {
			c.seen, c.seenAt = n, time.Now()
		} else if time.Since(c.seenAt) >= s.stuck {
			c.state = slotLent
		}
	}
	s.grant(p)
}

// String says what the copy waits for, and is empty if it does not.
func (c *slot) String() string {
	if c == nil {
		return ""
	}
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	if c.state != slotWaits {
		return ""
	}
	total, waiting := 0, 0
	for _, other := range c.pool.copies {
		switch other.state {
		case slotWorks:
			total++
		case slotWaits:
			waiting++
		}
	}
	return fmt.Sprintf("waiting for a slot: %d copies work from %s, %d wait", total, c.pool.servers, waiting)
}
