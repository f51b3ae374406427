package host

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// alarmEvery is how long a guest whose clock has stopped stands still.
const alarmEvery = 250 * time.Millisecond

// runAwake runs a User Mode Linux kernel. It keeps time by an alarm of the host's,
// and now and then loses one: it then waits, busily and for good, for the alarm that
// nobody has set. So it gets some that it has not asked for, which do nothing else.
func runAwake(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go sendAlarms(cmd.Process, ended)
	defer close(ended)
	return cmd.Wait()
}

func sendAlarms(kernel *os.Process, ended <-chan struct{}) {
	tick := time.NewTicker(alarmEvery)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			// Before the kernel waits for any, an alarm would end it.
			if catches(kernel.Pid, syscall.SIGALRM) {
				_ = kernel.Signal(syscall.SIGALRM)
			}
		}
	}
}

// catches tells whether a process has a handler for a signal.
func catches(pid int, signal syscall.Signal) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(status) {
		mask, ok := bytes.CutPrefix(line, []byte("SigCgt:"))
		if !ok {
			continue
		}
		caught, err := strconv.ParseUint(string(bytes.TrimSpace(mask)), 16, 64)
		return err == nil && caught&(1<<(uint(signal)-1)) != 0
	}
	return false
}
