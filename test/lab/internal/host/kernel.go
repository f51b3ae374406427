package host

import (
	"context"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/nfs-csi/nfs-csi/test/lab/ptrace"
)

// kernelEnv has the kernel call the lab's ptrace, and then what the caller preloads.
func (o Options) kernelEnv(ctx context.Context) ([]string, error) {
	library, err := ptrace.Library(ctx, o.CacheDir)
	if err != nil {
		return nil, err
	}
	preload := strings.TrimSuffix(library+":"+os.Getenv("LD_PRELOAD"), ":")
	return append(os.Environ(), "LD_PRELOAD="+preload), nil
}

func runKernel(ctx context.Context, scratch string, argv, env []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	console, err := os.Create(consolePath(scratch))
	if err != nil {
		return err
	}
	defer console.Close()

	cmd := jailed(self, scratch, argv)
	cmd.Env = env
	cmd.Stdin = os.Stdin
	cmd.Stdout, cmd.Stderr = console, console
	stdout, stdoutDone, err := relay(os.Stdout)
	if err != nil {
		return err
	}
	stderr, stderrDone, err := relay(os.Stderr)
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{stdout, stderr, console}
	err = start(ctx, cmd)
	stdout.Close()
	stderr.Close()
	<-stdoutDone
	<-stderrDone
	return err
}

// start runs cmd, and kills it (and with it its PID namespace) when ctx ends.
func start(ctx context.Context, cmd *exec.Cmd) error {
	// Pdeathsig is sent when the thread ends that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	return cmd.Wait()
}

// relay returns a pipe for the guest to write to, whose bytes go to w. It keeps
// the kernel from changing the terminal behind w.
func relay(w io.Writer) (*os.File, <-chan struct{}, error) {
	r, guest, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.Close()
		_, _ = io.Copy(w, r)
	}()
	return guest, done, nil
}
