package store

import (
	"slices"
	"time"
)

// Trees in the trash of an export are removed in slices, so that a large one, one
// that is written to and one that the server refuses to remove hold up no other.
const (
	// firstSlice is what a new tree gets at once, whichever is being removed: enough
	// for one of a few hundred entries.
	firstSlice = 100 * time.Millisecond
	// fullSlice is long for what is to be listed again in each.
	fullSlice = 5 * time.Second
	// longestSlice ends one in which nothing could be removed.
	longestSlice = time.Minute
	// manySlices make a tree a long one, or fewer in a row without any removal.
	manySlices   = 12
	futileSlices = 4
	// lateMin and lateMax are when a tree is tried again that cannot be finished now.
	lateMin = time.Second
	lateMax = 5 * time.Minute
	// maxQueue is how many trees of an export are known at a time. The trash itself
	// has the others.
	maxQueue = 1024
)

// lateness is why a tree is put last.
type lateness string

const (
	onTime lateness = ""
	// long: it is large, or is filled as fast as it is emptied.
	long lateness = "long"
	// written: there were new entries where all had been removed.
	written lateness = "written"
	// refused: the server does not let some of it be removed.
	refused lateness = "refused"
)

// discarded is a tree in the trash or, where that had no room, in tmp.
type discarded struct {
	name   string // below the catalog's directory
	slices int    // that it has had
	futile int    // of them, in a row, without any removal
	late   lateness
	told   []lateness // that it was late for before
	why    error
	due    time.Time
	wait   time.Duration
}

// slice is how long the next one is, and how long it may be while nothing could be
// removed in it: what cannot be removed may come first.
func (d *discarded) slice() (length, limit time.Duration) {
	if d.slices == 0 {
		return firstSlice, firstSlice
	}
	return fullSlice, min(fullSlice<<min(d.futile, 10), longestSlice)
}

// queue is the order in which the trees of an export get their slices: those that had
// none at once, then those that are on time one after the other, and after each round
// of them one of those that are late.
type queue struct {
	known   map[string]*discarded
	fresh   []*discarded
	line    []*discarded
	late    []*discarded
	current *discarded // the last of next
	round   int        // slices of the line since one that was late
}

// add takes a tree into the queue, unless it is in it.
func (q *queue) add(name string) {
	if q.known[name] != nil {
		return
	}
	if q.known == nil {
		q.known = map[string]*discarded{}
	}
	if q.full() && !q.forgetOne() {
		return
	}
	d := &discarded{name: name}
	q.known[name] = d
	q.fresh = append(q.fresh, d)
}

func (q *queue) full() bool { return len(q.known) >= maxQueue }

// forgetOne makes room. What is forgotten is found again in the trash.
func (q *queue) forgetOne() bool {
	for _, from := range []*[]*discarded{&q.late, &q.line} {
		if n := len(*from); n > 0 {
			delete(q.known, (*from)[n-1].name)
			*from = (*from)[:n-1]
			return true
		}
	}
	return false
}

// next takes the tree out whose turn it is, of those that had a slice, if there is
// one. Put it back by done or again.
func (q *queue) next(now time.Time) *discarded {
	q.current = nil
	if len(q.line) == 0 || q.round >= len(q.line) {
		q.round = 0
		if i := q.firstDue(now); i >= 0 {
			q.current = q.late[i]
			q.late = slices.Delete(q.late, i, i+1)
		}
	}
	if q.current == nil {
		q.round++
		q.current = shift(&q.line)
	}
	return q.current
}

// newcomer takes out one that had no slice, if there is one.
func (q *queue) newcomer() *discarded { return shift(&q.fresh) }

func (q *queue) firstDue(now time.Time) int {
	return slices.IndexFunc(q.late, func(d *discarded) bool { return !d.due.After(now) })
}

// goOn gives the current one another slice at once, unless there is another whose turn
// it is. It tells whether that makes it late, for the first time.
func (q *queue) goOn(now time.Time) (ok, news bool) {
	d := q.current
	if len(q.line) > 0 || q.firstDue(now) >= 0 {
		return false, false
	}
	if d.slices++; d.slices >= manySlices && d.late == onTime {
		d.late = long
	}
	return true, d.isNews()
}

// isNews tells whether it is late for the first time for this reason.
func (d *discarded) isNews() bool {
	if d.late == onTime || slices.Contains(d.told, d.late) {
		return false
	}
	d.told = append(d.told, d.late)
	return true
}

func shift(from *[]*discarded) *discarded {
	if len(*from) == 0 {
		return nil
	}
	d := (*from)[0]
	*from = (*from)[1:]
	return d
}

// done forgets a tree that is gone.
func (q *queue) done(d *discarded) {
	q.leave(d)
	delete(q.known, d.name)
}

func (q *queue) leave(d *discarded) {
	if q.current == d {
		q.current = nil
	}
}

// again puts back a tree that had a slice and is not gone. It is told whether
// something was removed and what kept the rest, if that was not the time. It tells
// whether that makes it late, for the first time.
func (q *queue) again(d *discarded, now time.Time, progress bool, late lateness, why error) (news bool) {
	q.leave(d)
	d.slices++
	if d.futile++; progress {
		d.futile = 0
	}
	d.late, d.why, d.due = late, why, now
	switch {
	case late != onTime:
		d.wait = min(max(2*d.wait, lateMin), lateMax)
		d.due = now.Add(d.wait)
	case d.slices >= manySlices, d.futile >= futileSlices:
		d.late = long
	}
	if d.late == onTime {
		q.line = append(q.line, d)
		return false
	}
	q.late = append(q.late, d)
	return d.isNews()
}

// due is when the first of those is that are late.
func (q *queue) due() (first time.Time, ok bool) {
	for _, d := range q.late {
		if !ok || d.due.Before(first) {
			first, ok = d.due, true
		}
	}
	return first, ok
}
