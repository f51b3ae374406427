package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nfs-csi/nfs-csi/test/bench/internal/report"
	"github.com/nfs-csi/nfs-csi/test/integration/cluster"
)

const (
	// Ratio of the time to that of the bare loop at which the former makes 0.8 of
	// the latter's volumes; and a rate that will do even so.
	timeTarget = 1.25
	rateTarget = 250

	residentTarget = 80   // MiB
	cpuTarget      = 10.0 // ms for one claim or volume
)

// benchClaims: how fast n claims that are there at once become volumes, and how
// fast n released volumes go.
func benchClaims(ctx context.Context, o options) error {
	for _, n := range o.claims {
		err := inBench(ctx, o, func(ctx context.Context, b *bench) error { return b.claimsAtOnce(ctx, n) })
		if err != nil {
			return fmt.Errorf("%d claims: %w", n, err)
		}
	}
	return nil
}

func (b *bench) claimsAtOnce(ctx context.Context, n int) error {
	createFloor, err := timed(func() error { return b.createBare(ctx, n) })
	if err != nil {
		return err
	}
	deleteFloor, err := timed(func() error { return b.deleteBare(ctx, n) })
	if err != nil {
		return err
	}
	if err := b.createClaims(ctx, n); err != nil {
		return err
	}
	created, err := b.work(ctx, func(w *volumeWatch) error { return w.await(ctx, n, saved) })
	if err != nil {
		return err
	}
	if volumes := len(b.driver.Volumes()); volumes != n {
		return fmt.Errorf("the driver has %d volumes, want %d", volumes, n)
	}
	if err := b.release(ctx); err != nil {
		return err
	}
	deleted, err := b.work(ctx, func(w *volumeWatch) error { return w.await(ctx, n, cleaned) })
	if err != nil {
		return err
	}
	if volumes := len(b.driver.Volumes()); volumes != 0 {
		return fmt.Errorf("the driver still has %d volumes", volumes)
	}
	created.print(fmt.Sprintf("create-%d", n), n, createFloor)
	each(fmt.Sprintf("create-%d/journal-writes", n), created.requests.sum(journal), n, journalTarget)
	deleted.print(fmt.Sprintf("delete-%d", n), n, deleteFloor)
	return nil
}

// used is what csi-provisioner took for its work.
type used struct {
	time, cpu time.Duration
	peak      float64
	requests  requests // of everybody
}

// work measures csi-provisioner from its start until done returns.
func (b *bench) work(ctx context.Context, done func(*volumeWatch) error) (used, error) {
	watch, err := b.watchVolumes(ctx)
	if err != nil {
		return used{}, err
	}
	defer watch.stop()
	before, err := b.requests(ctx)
	if err != nil {
		return used{}, err
	}
	began := time.Now()
	process, err := b.start()
	if err != nil {
		return used{}, err
	}
	if err := done(watch); err != nil {
		return used{}, errors.Join(err, process.Kill(), errors.New(process.Tail()))
	}
	u := used{time: time.Since(began)}
	if err := u.readProcess(process); err != nil {
		return u, errors.Join(err, process.Kill())
	}
	after, err := b.requests(ctx)
	u.requests = after.since(before)
	return u, errors.Join(err, stop(process))
}

func (u *used) readProcess(process *cluster.Process) (err error) {
	if u.cpu, err = report.CPU(process.PID()); err != nil {
		return err
	}
	u.peak, err = report.PeakMiB(process.PID())
	return err
}

func (u used) print(name string, n int, floor time.Duration) {
	// Either will do: see docs/bench.md. The two lines say the same in two units.
	rate := min(rateTarget, float64(n)/floor.Seconds()/timeTarget)
	target := float64(n) / rate / floor.Seconds()
	ratio := float64(u.time) / float64(floor)
	report.Line{
		Name: name + "/time", Value: round(u.time), Floor: round(floor), Ratio: fmt.Sprintf("%.2f", ratio),
		Target: fmt.Sprintf("%.2f", target), OK: ratio <= target,
	}.Print()
	report.AtLeast(name+"/rate", float64(n)/u.time.Seconds(), rate, "/s")
	report.AtMost(name+"/cpu-each", float64(u.cpu.Milliseconds())/float64(n), cpuTarget, "ms")
	report.AtMost(name+"/memory-peak", u.peak, residentTarget, "MiB")
}

func round(d time.Duration) string { return d.Round(time.Millisecond).String() }
