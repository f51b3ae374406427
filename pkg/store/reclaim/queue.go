package reclaim

import (
	"slices"
	"time"
)

// The trees in the trash of an export are removed in slices of time, so that one that
// is large, is still written to or cannot be removed delays no other.
const (
	// firstSlice is what a new tree gets at once, whichever is being removed: enough
	// for one of a few hundred entries.
	firstSlice = 100 * time.Millisecond
	// fullSlice is long compared with listing the tree again, which each slice does.
	fullSlice = 5 * time.Second
	// longestSlice ends a slice in which nothing could be removed.
	longestSlice = time.Minute
	// manySlices make a tree a long one, as do futileSlices in a row without a removal.
	manySlices   = 12
	futileSlices = 4
	// lateMin and lateMax bound the backoff of a tree that cannot be finished now.
	lateMin = time.Second
	lateMax = 5 * time.Minute
	// maxQueue is how many trees of an export are known at a time. The others stay in
	// the trash.
	maxQueue = 1024
)

// reason why a tree is late, which means removed after all others.
type reason string

const (
	onTime reason = ""
	// long: it is large, or is filled as fast as it is emptied.
	long reason = "long"
	// written: new entries appeared where all had been removed.
	written reason = "written"
	// refused: the server refuses to remove something in it.
	refused reason = "refused"
)

// trashEntry is a tree in the trash or, where that had no space, in tmp.
type trashEntry struct {
	name    string // below the catalog's directory
	slices  int    // so far
	futile  int    // the last of them, without a removal
	late    reason
	logged  []reason // reasons that were logged
	why     error    // what keeps the rest
	due     time.Time
	backoff time.Duration
}

// slice returns the length of the next slice, and the limit of one in which nothing
// could be removed: the listing may begin with what cannot be removed.
func (e *trashEntry) slice() (length, limit time.Duration) {
	if e.slices == 0 {
		return firstSlice, firstSlice
	}
	return fullSlice, min(fullSlice<<min(e.futile, 10), longestSlice)
}

// newlyLate reports whether it is late for this reason for the first time.
func (e *trashEntry) newlyLate() bool {
	if e.late == onTime || slices.Contains(e.logged, e.late) {
		return false
	}
	e.logged = append(e.logged, e.late)
	return true
}

// queue orders the trees of an export: new ones first, then those that are on time,
// round robin, and after each round one that is late.
type queue struct {
	known   map[string]*trashEntry
	fresh   []*trashEntry // without a slice so far
	ready   []*trashEntry
	late    []*trashEntry
	current *trashEntry // the last of next
	round   int         // slices of ready ones since one that was late
}

// add enqueues a tree, unless it is known.
func (q *queue) add(name string) {
	if q.known[name] != nil {
		return
	}
	if q.known == nil {
		q.known = map[string]*trashEntry{}
	}
	if q.full() && !q.forgetOne() {
		return
	}
	e := &trashEntry{name: name}
	q.known[name] = e
	q.fresh = append(q.fresh, e)
}

func (q *queue) full() bool { return len(q.known) >= maxQueue }

// forgetOne makes room for another. A later scan of the trash finds it again.
func (q *queue) forgetOne() bool {
	for _, from := range []*[]*trashEntry{&q.late, &q.ready} {
		if n := len(*from); n > 0 {
			delete(q.known, (*from)[n-1].name)
			*from = (*from)[:n-1]
			return true
		}
	}
	return false
}

// nextFresh dequeues a tree without a slice so far; nil if there is none.
func (q *queue) nextFresh() *trashEntry { return shift(&q.fresh) }

// next dequeues the next of the other trees; nil if none is due. Hand it to done or
// requeue afterwards.
func (q *queue) next(now time.Time) *trashEntry {
	q.current = nil
	if len(q.ready) == 0 || q.round >= len(q.ready) {
		q.round = 0
		if i := q.firstDue(now); i >= 0 {
			q.current = q.late[i]
			q.late = slices.Delete(q.late, i, i+1)
		}
	}
	if q.current == nil {
		q.round++
		q.current = shift(&q.ready)
	}
	return q.current
}

func (q *queue) firstDue(now time.Time) int {
	return slices.IndexFunc(q.late, func(e *trashEntry) bool { return !e.due.After(now) })
}

// extend gives the current tree another slice at once, unless another tree is due.
// newlyLate is the tree's.
func (q *queue) extend(now time.Time) (ok, newlyLate bool) {
	e := q.current
	if len(q.ready) > 0 || q.firstDue(now) >= 0 {
		return false, false
	}
	if e.slices++; e.slices >= manySlices && e.late == onTime {
		e.late = long
	}
	return true, e.newlyLate()
}

func shift(from *[]*trashEntry) *trashEntry {
	if len(*from) == 0 {
		return nil
	}
	e := (*from)[0]
	*from = (*from)[1:]
	return e
}

// done forgets a tree that is gone.
func (q *queue) done(e *trashEntry) {
	q.release(e)
	delete(q.known, e.name)
}

func (q *queue) release(e *trashEntry) {
	if q.current == e {
		q.current = nil
	}
}

// requeue enqueues a tree after a slice that left something of it. late and why say
// what kept the rest, other than the time. newlyLate is the tree's.
func (q *queue) requeue(e *trashEntry, now time.Time, progress bool, late reason, why error) (newlyLate bool) {
	q.release(e)
	e.slices++
	if e.futile++; progress {
		e.futile = 0
	}
	e.late, e.why, e.due = late, why, now
	switch {
	case late != onTime:
		e.backoff = min(max(2*e.backoff, lateMin), lateMax)
		e.due = now.Add(e.backoff)
	case e.slices >= manySlices, e.futile >= futileSlices:
		e.late = long
	}
	if e.late == onTime {
		q.ready = append(q.ready, e)
		return false
	}
	q.late = append(q.late, e)
	return e.newlyLate()
}

// due is when the first late tree is due.
func (q *queue) due() (first time.Time, ok bool) {
	for _, e := range q.late {
		if !ok || e.due.Before(first) {
			first, ok = e.due, true
		}
	}
	return first, ok
}

// countLate counts the late trees.
func (q *queue) countLate() Late {
	var l Late
	count := func(e *trashEntry) {
		switch e.late {
		case long:
			l.Long++
		case written:
			l.Written++
		case refused:
			l.Refused++
			if l.Left == "" {
				l.Left = e.why.Error()
			}
		}
	}
	for _, e := range q.late {
		count(e)
	}
	if q.current != nil {
		count(q.current)
	}
	return l
}
