package reclaim

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// pop dequeues the tree that gets the next slice.
func (q *queue) pop(now time.Time) *trashEntry {
	if e := q.nextFresh(); e != nil {
		return e
	}
	return q.next(now)
}

// order lists the trees that get the next n slices, where none is finished.
func (q *queue) order(n int, now time.Time) string {
	var names []string
	for range n {
		e := q.pop(now)
		if e == nil {
			names = append(names, "-")
			continue
		}
		names = append(names, e.name)
		q.requeue(e, now, true, onTime, nil)
	}
	return strings.Join(names, " ")
}

func TestQueueIsRoundRobin(t *testing.T) {
	var q queue
	for _, name := range []string{"a", "b", "a", "c"} {
		q.add(name)
	}
	now := time.Now()
	if got := q.order(7, now); got != "a b c a b c a" {
		t.Errorf("the order is %s", got)
	}
	q.add("new")
	if got := q.order(5, now); got != "new b c a new" {
		t.Errorf("with a new tree the order is %s", got)
	}
	for len(q.known) > 0 {
		q.done(q.pop(now))
	}
	if e := q.pop(now); e != nil {
		t.Errorf("%s is left", e.name)
	}
}

func TestQueueOfLateTrees(t *testing.T) {
	why := errors.New("why")
	for _, late := range []reason{written, refused} {
		q, now := queue{}, time.Now()
		q.add("a")
		q.add("b")
		q.order(4, now)
		q.add("late")
		for wait := lateMin; wait < 3*lateMax; wait *= 2 {
			e := q.pop(now)
			if e.name != "late" {
				t.Fatalf("next is %s, want late", e.name)
			}
			if newlyLate := q.requeue(e, now, true, late, why); newlyLate != (wait == lateMin) {
				t.Errorf("after %s: newly late is %v", wait, newlyLate)
			}
			due, ok := q.due()
			if want := now.Add(min(wait, lateMax)); !ok || !due.Equal(want) {
				t.Errorf("it is due in %s, want %s", due.Sub(now), want.Sub(now))
			}
			if got := q.order(2, due.Add(-1)); got != "a b" {
				t.Errorf("before it is due the order is %s", got)
			}
			for _, other := range q.ready {
				other.slices = 1 // keeps it from becoming a long one
			}
			now = due
		}
		if l := q.countLate(); l.Written+l.Refused != 1 || (l.Refused == 1) != (late == refused) || (l.Left == "why") != (late == refused) {
			t.Errorf("%s: %+v", late, l)
		}
		q.done(q.pop(now))
		if l := q.countLate(); l != (Late{}) {
			t.Errorf("when it is done: %+v", l)
		}
	}
}

// All long trees together get as much time as one that is on time.
func TestQueueOfLongTrees(t *testing.T) {
	q, now := queue{}, time.Now()
	q.add("x")
	q.add("y")
	q.order(3*manySlices, now)
	if l := q.countLate(); l != (Late{Long: 2}) {
		t.Errorf("counted %+v", l)
	}
	q.add("a")
	q.add("b")
	order := q.order(30, now)
	for name, want := range map[string]int{"a": 10, "b": 10, "x": 5, "y": 5} {
		if got := strings.Count(order, name); got < want-1 || got > want+1 {
			t.Errorf("%s has %d of 30 slices, want %d: %s", name, got, want, order)
		}
	}
}

// The only tree gets one slice after the other, and becomes a long one.
func TestQueueOfOneTree(t *testing.T) {
	q, now := queue{}, time.Now()
	q.add("x")
	q.requeue(q.pop(now), now, true, onTime, nil)
	e := q.pop(now)
	for i := e.slices + 1; i <= 2*manySlices; i++ {
		if ok, newlyLate := q.extend(now); !ok || newlyLate != (i == manySlices) {
			t.Errorf("slice %d: extended is %v, newly late %v", i, ok, newlyLate)
		}
	}
	if l := q.countLate(); l != (Late{Long: 1}) {
		t.Errorf("counted %+v", l)
	}
	q.add("y")
	q.requeue(q.nextFresh(), now, true, onTime, nil)
	if ok, _ := q.extend(now); ok {
		t.Error("it was extended while another was ready")
	}
	q.requeue(e, now, true, onTime, nil)
	if l := q.countLate(); l != (Late{Long: 1}) {
		t.Errorf("counted %+v", l)
	}
}

func TestQueueOfFutileSlices(t *testing.T) {
	q, now := queue{}, time.Now()
	q.add("x")
	for i := 1; ; i++ {
		e := q.pop(now)
		length, limit := e.slice()
		if length > fullSlice || limit < length || limit > longestSlice {
			t.Errorf("the length of slice %d is %s, its limit %s", i, length, limit)
		}
		if q.requeue(e, now, false, onTime, nil) {
			if i != futileSlices {
				t.Errorf("it became a long one after %d slices, want %d", i, futileSlices)
			}
			break
		}
	}
}

func TestQueueIsBounded(t *testing.T) {
	q, now := queue{}, time.Now()
	for i := range 3 * maxQueue {
		q.add(fmt.Sprint(i))
	}
	if len(q.known) != maxQueue {
		t.Errorf("%d are known, want %d", len(q.known), maxQueue)
	}
	for range maxQueue {
		q.requeue(q.pop(now), now, true, refused, errors.New("why"))
	}
	q.add("new") // does not wait for the others
	if e := q.nextFresh(); e == nil || e.name != "new" || len(q.known) != maxQueue {
		t.Errorf("next is %+v, and %d are known", e, len(q.known))
	}
}
