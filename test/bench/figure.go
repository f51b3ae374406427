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

// beside measures an operation and its floor, n times each, and prints them: with
// one caller by turns, so that whatever else the machine does meets both. Apart from
// this it prints what the operation takes beyond a call that does nothing.
func (b *bench) beside(name string, parallel, n int, floor, op func(i int) error) error {
	if parallel > 1 {
		return besideTogether(name, parallel, n/parallel, floor, op)
	}
	var floors, values, probes samples
	for from := 0; from < n; from += turn {
		count := min(turn, n-from)
		f, err := measure(1, count, func(i int) error { return floor(from + i) })
		if err != nil {
			return err
		}
		v, err := measure(1, count, func(i int) error { return op(from + i) })
		if err != nil {
			return err
		}
		p, err := measure(1, count, b.probe)
		if err != nil {
			return err
		}
		floors, values, probes = append(floors, f...), append(values, v...), append(probes, p...)
	}
	ratio(name, values, floors)
	figure(name+"/beyond-probe/p50", values.percentile(50)-probes.percentile(50), floors.percentile(50), quickTarget)
	return nil
}

// besideTogether prints besides how long it took all callers, divided by the
// number of calls: most of many callers of a system call wait for one that goes on
// calling, so that half of the calls take no longer than alone, and some forever.
func besideTogether(name string, parallel, each int, floor, op func(i int) error) error {
	began := time.Now()
	floors, err := together(parallel, each, floor)
	if err != nil {
		return err
	}
	between := time.Now()
	values, err := measure(parallel, each, op)
	if err != nil {
		return err
	}
	calls := time.Duration(parallel * each)
	figure(name+"/each", time.Since(between)/calls, between.Sub(began)/calls, quickTarget)
	ratio(name, values, floors)
	return nil
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
