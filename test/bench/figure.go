package main

import (
	"errors"
	"fmt"
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

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
