package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
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
	rss, err := residentMiB(b.process.Process.Pid)
	if err != nil {
		return err
	}
	absolute(b.name("memory-idle"), rss, 40, "MiB")
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
			rss, err := residentMiB(b.process.Process.Pid)
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

func residentMiB(pid int) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if kb, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(kb, "kB")))
			return float64(n) / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in %s", f.Name())
}
