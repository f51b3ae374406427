package reclaim

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// take is what gets the next slice.
func (q *queue) take(now time.Time) *trashEntry {
	if d := q.nextFresh(); d != nil {
		return d
	}
	return q.next(now)
}

// order is whose turn it is, n times, where none of them comes to an end.
func (q *queue) order(n int, now time.Time) string {
	var names []string
	for range n {
		d := q.take(now)
		if d == nil {
			names = append(names, "-")
			continue
		}
		names = append(names, d.name)
		q.requeue(d, now, true, onTime, nil)
	}
	return strings.Join(names, " ")
}

func TestQueueTakesTurns(t *testing.T) {
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
		t.Errorf("with a new one the order is %s", got)
	}
	for len(q.known) > 0 {
		q.done(q.take(now))
	}
	if d := q.take(now); d != nil {
		t.Errorf("there is %s", d.name)
	}
}

func TestQueuePutsLast(t *testing.T) {
	why := errors.New("why")
	for _, late := range []reason{written, refused} {
		q, now := queue{}, time.Now()
		q.add("a")
		q.add("b")
		q.order(4, now)
		q.add("late")
		for wait := lateMin; wait < 3*lateMax; wait *= 2 {
			d := q.take(now)
			if d.name != "late" {
				t.Fatalf("it is the turn of %s", d.name)
			}
			if news := q.requeue(d, now, true, late, why); news != (wait == lateMin) {
				t.Errorf("after %s: that it is late is news: %v", wait, news)
			}
			due, ok := q.due()
			if want := now.Add(min(wait, lateMax)); !ok || !due.Equal(want) {
				t.Errorf("it is due in %s, want %s", due.Sub(now), want.Sub(now))
			}
			if got := q.order(2, due.Add(-1)); got != "a b" {
				t.Errorf("before it is due the order is %s", got)
			}
			for _, other := range q.ready {
				other.slices = 1 // or it would be a long one
			}
			now = due
		}
		if l := q.countLate(); l.Written+l.Refused != 1 || (l.Refused == 1) != (late == refused) || (l.Left == "why") != (late == refused) {
			t.Errorf("%s: %+v", late, l)
		}
		q.done(q.take(now))
		if l := q.countLate(); l != (Late{}) {
			t.Errorf("when it is gone: %+v", l)
		}
	}
}

// All that take long have together as much time as one that does not.
func TestQueueOfLongOnes(t *testing.T) {
	q, now := queue{}, time.Now()
	q.add("x")
	q.add("y")
	q.order(3*manySlices, now)
	if l := q.countLate(); l != (Late{Long: 2}) {
		t.Errorf("late are %+v", l)
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

// One that is alone goes on, and is a long one in the end.
func TestQueueOfOne(t *testing.T) {
	q, now := queue{}, time.Now()
	q.add("x")
	q.requeue(q.take(now), now, true, onTime, nil)
	d := q.take(now)
	for i := d.slices + 1; i <= 2*manySlices; i++ {
		if ok, news := q.extend(now); !ok || news != (i == manySlices) {
			t.Errorf("slice %d: goes on %v, is news %v", i, ok, news)
		}
	}
	if l := q.countLate(); l != (Late{Long: 1}) {
		t.Errorf("late are %+v", l)
	}
	q.add("y")
	q.requeue(q.nextFresh(), now, true, onTime, nil)
	if ok, _ := q.extend(now); ok {
		t.Error("it goes on while another waits")
	}
	q.requeue(d, now, true, onTime, nil)
	if l := q.countLate(); l != (Late{Long: 1}) {
		t.Errorf("late are %+v", l)
	}
}

func TestQueueOfFutileOnes(t *testing.T) {
	q, now := queue{}, time.Now()
	q.add("x")
	for i := 1; ; i++ {
		d := q.take(now)
		length, limit := d.slice()
		if length > fullSlice || limit < length || limit > longestSlice {
			t.Errorf("slice %d is %s long, %s at most", i, length, limit)
		}
		if q.requeue(d, now, false, onTime, nil) {
			if i != futileSlices {
				t.Errorf("after %d slices it is a long one", i)
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
		q.requeue(q.take(now), now, true, refused, errors.New("why"))
	}
	q.add("new") // does not wait until one of them ends
	if d := q.nextFresh(); d == nil || d.name != "new" || len(q.known) != maxQueue {
		t.Errorf("it is the turn of %+v, and %d are known", d, len(q.known))
	}
}
