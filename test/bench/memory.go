package main

import (
	"time"

	"github.com/nfs-csi/nfs-csi/test/bench/internal/report"
)

// benchMemory: what the plugin holds once it has served every quick call.
func benchMemory(b *bench) error {
	if b.network != roundTrip(0) {
		return nil
	}
	v, err := b.create("held", "xfs")
	if err != nil {
		return err
	}
	if err := b.delete(v); err != nil {
		return err
	}
	rss, err := report.ResidentMiB(b.process.Process.Pid)
	if err != nil {
		return err
	}
	report.AtMost(b.name("memory-idle"), rss, 40, "MiB")
	return nil
}

// watchMemory samples the plugin until it is stopped, and then tells the most
// that it has held.
func (b *bench) watchMemory() (stop func() (peak float64, err error)) {
	end, result := make(chan struct{}), make(chan error, 1)
	var peak float64
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			rss, err := report.ResidentMiB(b.process.Process.Pid)
			peak = max(peak, rss)
			if err != nil {
				result <- err
				return
			}
			select {
			case <-end:
				result <- nil
				return
			case <-tick.C:
			}
		}
	}()
	return func() (float64, error) {
		close(end)
		err := <-result
		return peak, err
	}
}
