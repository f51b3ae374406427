package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/nfs-csi/nfs-csi/test/bench/internal/report"
)

// samples of one operation.
type samples []time.Duration

// percentile p, from 0 to 100, by the nearest rank.
func (s samples) percentile(p int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// measure runs op n times on each of parallel workers and returns how long each
// run took. op gets a number of its own.
func measure(parallel, n int, op func(i int) error) (samples, error) {
	var mu sync.Mutex
	var all samples
	var failed error
	var wg sync.WaitGroup
	for w := range parallel {
		wg.Go(func() {
			for i := range n {
				began := time.Now()
				err := op(w*n + i)
				took := time.Since(began)
				mu.Lock()
				all = append(all, took)
				failed = errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return all, failed
}

// turn is how many calls of one kind are made before it is the other's turn.
const turn = 10

// beside measures an operation and its floor: with one caller by turns, so that
// whatever else the machine does meets both.
func beside(parallel, n int, floor, op func(i int) error) (floors, values samples, err error) {
	if parallel > 1 {
		if floors, err = together(parallel, n, floor); err == nil {
			values, err = measure(parallel, n, op)
		}
		return floors, values, err
	}
	for from := 0; from < n && err == nil; from += turn {
		var f, v samples
		count := min(turn, n-from)
		if f, err = measure(1, count, func(i int) error { return floor(from + i) }); err == nil {
			v, err = measure(1, count, func(i int) error { return op(from + i) })
		}
		floors, values = append(floors, f...), append(values, v...)
	}
	return floors, values, err
}

// together measures a floor, which is a system call: its callers each have a
// thread, as those of the plugin each have a goroutine of the server's. On one
// processor the Go runtime would otherwise make the calls one after the other.
func together(parallel, n int, op func(i int) error) (samples, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(parallel, runtime.GOMAXPROCS(0))))
	return measure(parallel, n, op)
}

// quickTarget is the largest ratio that is good for a call that does one thing.
const quickTarget = 10

// ratio prints the p50 and the p99 of an operation beside those of its floor.
func ratio(name string, value, floor samples) {
	for _, p := range []int{50, 99} {
		figure(fmt.Sprintf("%s/p%d", name, p), value.percentile(p), floor.percentile(p), quickTarget)
	}
}

// figure prints one line.
func figure(name string, value, floor time.Duration, target float64) {
	r := float64(value) / float64(floor)
	report.Line{
		Name: name, Value: round(value).String(), Floor: round(floor).String(),
		Ratio: fmt.Sprintf("%.2f", r), Target: fmt.Sprintf("%.2f", target), OK: r <= target,
	}.Print()
}

// fact prints the p50 and the p99 of what there is no target for.
func fact(name string, value samples) {
	for _, p := range []int{50, 99} {
		report.Line{
			Name: fmt.Sprintf("%s/p%d", name, p), Value: round(value.percentile(p)).String(),
			Floor: "none", Ratio: "none", Target: "none", OK: true,
		}.Print()
	}
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
