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

// turn is how many calls of one kind are made before it is another's turn.
const turn = 10

// operation of the plugin beside its floor. Both are given the number of the call.
type operation struct {
	name         string
	floor, value func(i int) error
	// lessProbe has it judged, on loopback, by what it takes beyond a call that does
	// nothing, which there takes as long as dozens of system calls.
	lessProbe bool
}

// measured is what came of an operation.
type measured struct {
	floors, values, probes samples
	// How long it took all callers together.
	floorTime, valueTime, probeTime time.Duration
}

// beside measures operations, their floors and calls that do nothing, n times each,
// and prints them: with one caller by turns, so that whatever else the machine does
// meets all.
//
// With many callers it prints besides how long it took them all, divided by the
// number of calls: most of many callers of a system call wait for one that goes on
// calling, so that half of the calls take no longer than alone, and some forever.
func (b *bench) beside(parallel, n int, ops ...operation) error {
	count := n
	if parallel == 1 {
		count = turn
	}
	results := make([]measured, len(ops))
	for from := 0; from < n; from += count {
		for i, op := range ops {
			if err := results[i].add(parallel, from, count, op, b.probe); err != nil {
				return err
			}
		}
	}
	for i, op := range ops {
		whole := float64(quickTarget)
		if op.lessProbe && b.network == roundTrip(0) {
			whole = noTarget
		}
		results[i].print(op.name, parallel, n, whole)
	}
	return nil
}

func (m *measured) add(parallel, from, count int, op operation, probe func(int) error) error {
	began := time.Now()
	floors, err := together(parallel, count/parallel, func(i int) error { return op.floor(from + i) })
	if err != nil {
		return err
	}
	between := time.Now()
	values, err := measure(parallel, count/parallel, func(i int) error { return op.value(from + i) })
	if err != nil {
		return err
	}
	after := time.Now()
	probes, err := measure(parallel, count/parallel, probe)
	if err != nil {
		return err
	}
	m.floorTime += between.Sub(began)
	m.valueTime += after.Sub(between)
	m.probeTime += time.Since(after)
	m.floors, m.values, m.probes = append(m.floors, floors...), append(m.values, values...), append(m.probes, probes...)
	return nil
}

// print is given the target of the whole call; what is beyond a call that does
// nothing has the same one always.
func (m *measured) print(name string, parallel, n int, whole float64) {
	if parallel > 1 {
		each := time.Duration(n)
		figure(name+"/each", m.valueTime/each, m.floorTime/each, whole)
		figure(name+"/beyond-probe/each", (m.valueTime-m.probeTime)/each, m.floorTime/each, quickTarget)
	}
	ratio(name, m.values, m.floors, whole)
	if parallel == 1 {
		figure(name+"/beyond-probe/p50", m.values.percentile(50)-m.probes.percentile(50), m.floors.percentile(50), quickTarget)
	}
}

// together measures a floor, which is a system call: its callers each have a
// thread, as those of the plugin each have a goroutine of the server's. On one
// processor the Go runtime would otherwise make the calls one after the other.
func together(parallel, n int, op func(i int) error) (samples, error) {
	if now := runtime.GOMAXPROCS(0); parallel > now {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(parallel))
	}
	return measure(parallel, n, op)
}

const (
	// quickTarget is the largest ratio that is good for a call that does one thing.
	quickTarget = 10
	// noTarget is for what is not judged by its ratio.
	noTarget = 0
)

// ratio prints the p50 and the p99 of an operation beside those of its floor.
func ratio(name string, value, floor samples, target float64) {
	for _, p := range []int{50, 99} {
		figure(fmt.Sprintf("%s/p%d", name, p), value.percentile(p), floor.percentile(p), target)
	}
}

// figure prints one line.
func figure(name string, value, floor time.Duration, target float64) {
	r := float64(value) / float64(floor)
	line := report.Line{
		Name: name, Value: round(value).String(), Floor: round(floor).String(),
		Ratio: fmt.Sprintf("%.2f", r), Target: "none", OK: true,
	}
	if target != noTarget {
		line.Target, line.OK = fmt.Sprintf("%.2f", target), r <= target
	}
	line.Print()
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
