// Package guest is the init of the lab's guest: process 1 of a User Mode Linux
// kernel whose root is the host's file system, read-only.
package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/test/lab/internal/job"
	"github.com/nfs-csi/nfs-csi/test/lab/internal/node"
)

// Main is the guest's init: it runs the job that the host left in scratch and
// powers the guest off. It does not return.
func Main(scratch string) {
	if os.Getpid() == 1 {
		superviseInRoot(scratch)
	}
	if err := os.Setenv("PATH", searchPath); err != nil {
		panic(err)
	}
	var result job.Result
	code, err := run()
	if err != nil {
		result.Error = err.Error()
	}
	result.ExitCode = code
	if err := result.Write(job.ScratchDir); err != nil {
		fmt.Fprintf(os.Stderr, "lab guest: write result: %v (%+v)\n", err, result)
	}
	os.Exit(0)
}

// superviseInRoot is process 1. It makes the root, runs the job in a child, and
// waits for every process that is orphaned meanwhile; the child can then use
// os/exec without its processes being waited for by somebody else.
func superviseInRoot(scratch string) {
	defer powerOff()
	if err := enterRoot(scratch); err != nil {
		fmt.Fprintf(os.Stderr, "lab guest: set up the root: %v\n", err)
		return
	}
	if err := sleepLonger(); err != nil {
		fmt.Fprintf(os.Stderr, "lab guest: %v\n", err)
		return
	}
	child := exec.Command("/proc/self/exe", os.Args[1:]...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "lab guest: %v\n", err)
		return
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == child.Process.Pid || (err != nil && !errors.Is(err, unix.EINTR)) {
			return
		}
	}
}

// timerSlack is how much later than asked for a sleep may end in the guest.
const timerSlack = time.Millisecond

// sleepLonger gives what this thread starts the timer slack. Every Go program has a
// thread that looks around every 20 microseconds while there is work; with the 50
// that are usual, where a system call takes 10, it takes half of the processor.
func sleepLonger() error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack: %w", err)
	}
	return nil
}

func run() (int, error) {
	began := time.Now()
	j, err := job.Read(job.ScratchDir)
	if err != nil {
		return 0, err
	}
	steps, err := openSteps(j)
	if err != nil {
		return 0, err
	}
	defer steps.Close()
	reached := func(what string) {
		fmt.Fprintf(steps, "lab guest: %s after %s\n", what, time.Since(began).Round(time.Millisecond))
	}
	for _, step := range []struct {
		what string
		do   func(job.Job) error
	}{
		{"share the host's directories", share},
		{"load modules", loadModules},
		{"set up the network", setUpNetwork},
		{"mount the disks", mountDisks},
		{"start the NFS server", startNFS},
	} {
		if err := step.do(j); err != nil {
			return 0, fmt.Errorf("%s: %w", step.what, err)
		}
		reached(step.what + ": done")
	}
	env := environment(j)
	if j.Cluster != nil {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		defer stop()
		n, err := node.Start(ctx, node.Config{
			Kube: j.Cluster.Kube, Images: j.Cluster.Images, LogDir: logDir, Disk: "/dev/ubdc", Reached: reached,
		})
		if err != nil {
			return 0, fmt.Errorf("start the Kubernetes node: %w", err)
		}
		defer n.Stop()
		env = append(env, n.Env()...)
	}
	return runCommand(j, env)
}

// powerOff lets the disks settle first: an export that is kept for another boot
// has to be whole.
func powerOff() {
	_ = unix.Kill(-1, unix.SIGKILL)
	_ = stopNFS()
	unmountDisks()
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
