package report

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ResidentMiB is what a process holds in memory now.
func ResidentMiB(pid int) (float64, error) { return statusMiB(pid, "VmRSS:") }

// PeakMiB is the most that a process has held in memory so far.
func PeakMiB(pid int) (float64, error) { return statusMiB(pid, "VmHWM:") }

func statusMiB(pid int, field string) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if kb, ok := strings.CutPrefix(lines.Text(), field); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(kb, "kB")))
			return float64(n) / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in %s", field, f.Name())
}

// CPU is the processor time that a process has used so far, its own and the
// kernel's on its behalf: see proc_pid_stat(5).
func CPU(pid int) (time.Duration, error) {
	const (
		// Of the fields after the name, which ends at the last parenthesis.
		userField, systemField = 11, 12
		// USER_HZ is the same on every architecture that Go runs on.
		tick = 10 * time.Millisecond
	)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, err := strconv.Atoi(fields[userField])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[systemField])
	return time.Duration(user+system) * tick, err
}
