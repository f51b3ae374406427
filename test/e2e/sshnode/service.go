package sshnode

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a program has to end after SIGTERM.
const stopTimeout = time.Minute

// service is a program that somebody else started, and that can be stopped and started
// again with the same arguments, environment and log.
type service struct {
	program   string
	args, env []string
	log       string

	mu  sync.Mutex
	pid int // 0: stopped
}

// findService looks for the process whose executable is named program.
func findService(program string) (*service, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found *service
	for _, dir := range dirs {
		args := readList(filepath.Join(dir, "cmdline"))
		if len(args) == 0 || filepath.Base(args[0]) != program {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("more than one process is named %s: %d and %s", program, found.pid, filepath.Base(dir))
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return nil, err
		}
		log, err := os.Readlink(filepath.Join(dir, "fd/1"))
		if err != nil {
			return nil, fmt.Errorf("standard output of %s: %w", program, err)
		}
		found = &service{program: program, args: args, env: readList(filepath.Join(dir, "environ")), log: log, pid: pid}
	}
	if found == nil {
		return nil, fmt.Errorf("no process is named %s", program)
	}
	return found, nil
}

// readList reads a list of strings of /proc, empty if the process has ended.
func readList(path string) []string {
	content, err := os.ReadFile(path)
	if err != nil || len(content) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(content, []byte{0})), "\x00")
}

func (s *service) active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running()
}

func (s *service) running() bool { return s.pid != 0 && syscall.Kill(s.pid, 0) == nil }

// stop returns when the process has ended.
func (s *service) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return nil
	}
	if err := syscall.Kill(s.pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", s.program, err)
	}
	for deadline := time.Now().Add(stopTimeout); s.running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("stop %s: process %d is still there %v after SIGTERM", s.program, s.pid, stopTimeout)
		}
	}
	s.pid = 0
	return nil
}

// start leaves a running program alone. The process outlives this one.
func (s *service) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return nil
	}
	log, err := os.OpenFile(s.log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("log of %s: %w", s.program, err)
	}
	command := exec.Command(s.args[0], s.args[1:]...)
	command.Env, command.Stdout, command.Stderr = s.env, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", s.program, err), log.Close())
	}
	s.pid = command.Process.Pid
	go func() { _ = command.Wait() }() // so that stop sees it end
	return log.Close()
}
