package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/test/lab/internal/job"
	"github.com/nfs-csi/nfs-csi/test/lab/internal/node"
)

// searchPath begins with what the lab itself brings: the Kubernetes programs.
const searchPath = node.BinDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is what every command in the guest finds; docs/lab.md lists it.
func environment(j job.Job) []string {
	env := []string{
		"PATH=" + searchPath, "HOME=/root", "LANG=C.UTF-8",
		"LAB=nfs", "LAB_NFS_SERVER=127.0.0.1", "LAB_EXPORT_EXT4=/export/ext4", "LAB_EXPORT_XFS=/export/xfs",
		"LAB_SCRATCH=" + job.ScratchDir,
	}
	if j.Terminal != nil {
		env = append(env, "TERM="+j.Terminal.Type, "PS1=lab# ")
	}
	return append(env, j.Env...)
}

// runCommand runs the job's command on the guest's serial lines and returns its
// exit code.
func runCommand(j job.Job, env []string) (int, error) {
	argv := j.Command
	if len(argv) == 0 {
		argv = []string{"/bin/bash", "--norc"}
	}
	stdout, err := openLine(job.StdoutLine, j.Terminal)
	if err != nil {
		return 0, err
	}
	defer drain(stdout)
	stderr, err := openLine(job.StderrLine, nil)
	if err != nil {
		return 0, err
	}
	defer drain(stderr)

	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = j.Dir, env
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if j.Terminal != nil {
		cmd.Stdin, cmd.Stderr = stdout, stdout
		cmd.SysProcAttr.Setctty = true
	}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", argv[0], err)
	}
	return 0, nil
}

// steps is where the guest tells of its own steps.
type steps struct {
	io.Writer
	line *os.File // nil: the console only
}

func openSteps(j job.Job) (steps, error) {
	if !j.Verbose {
		return steps{Writer: os.Stderr}, nil
	}
	line, err := openLine(job.StderrLine, nil)
	return steps{io.MultiWriter(os.Stderr, line), line}, err
}

func (s steps) Close() {
	if s.line != nil {
		drain(s.line)
	}
}

// openLine opens a serial line. Without a terminal at its other end it carries
// bytes as they are.
func openLine(path string, t *job.Terminal) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if t != nil {
		return f, unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: t.Rows, Col: t.Cols})
	}
	attr, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	attr.Oflag &^= unix.OPOST
	attr.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	return f, unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, attr)
}

// drain waits until the host has all that was written.
func drain(f *os.File) {
	const drainOutput = 1 // as tcdrain(3) calls TCSBRK
	_ = unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, drainOutput)
	f.Close()
}
