package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Process is a program that runs in a process group of its own, with its output
// in a file.
type Process struct {
	// Log is the path of the file with all it wrote.
	Log string

	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error
}

// StartProcess starts a program. Nothing of it outlives this process: if it is
// not stopped, the kernel kills it when this process dies.
func StartProcess(dir, name, path string, args ...string) (*Process, error) {
	log, err := os.CreateTemp(dir, filepath.Base(name)+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// The program has its own descriptor of it.
	defer func() { _ = log.Close() }()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	process := &Process{Log: log.Name(), name: name, cmd: cmd, exited: make(chan struct{})}
	go func() {
		process.err = cmd.Wait()
		close(process.exited)
	}()
	return process, nil
}

// Signal sends a signal to the process itself.
func (p *Process) Signal(signal syscall.Signal) error { return p.cmd.Process.Signal(signal) }

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait returns how the process ended, nil for status 0, or the end of ctx.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("%s still runs: %w", p.name, ctx.Err())
	}
}

// Kill ends the process and its children at once and waits until they are gone. What
// the race detector found while it ran is an error.
func (p *Process) Kill() error {
	err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.exited
	return p.raced()
}

// raced returns the first report of the race detector, if the program has it.
func (p *Process) raced() error {
	const most = 4096
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return fmt.Errorf("output of %s: %w", p.name, err)
	}
	if at := bytes.Index(text, []byte("WARNING: DATA RACE")); at >= 0 {
		return fmt.Errorf("%s: %s", p.name, text[at:min(len(text), at+most)])
	}
	return nil
}

// Stop asks the process to end, and kills it when it does not within grace.
func (p *Process) Stop(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	// It may be gone already; then there is nothing to ask.
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
	return p.Kill()
}

// Tail is the end of what the process wrote, for messages of failed tests.
func (p *Process) Tail() string {
	const most = 4096
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s: end of %s:\n%s", p.name, p.Log, text[max(0, len(text)-most):])
}
