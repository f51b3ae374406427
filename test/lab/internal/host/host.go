// Package host boots the guest: a User Mode Linux kernel that runs as an
// ordinary process on the machine's own file system, which it can read but not
// write.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/nfs-csi/nfs-csi/test/lab/internal/job"
)

// GuestCommand is the hidden subcommand that the guest's kernel starts as init.
const GuestCommand = "guest"

const kernel = "/usr/bin/linux.uml"

// Options say what to boot.
type Options struct {
	Command  []string      // empty: a shell
	Env      []string      // added to the guest's own
	Scratch  string        // empty: a temporary directory, removed afterwards
	Keep     bool          // leave the disks in Scratch for another boot
	Timeout  time.Duration // of the whole run
	Memory   string        // as the mem= parameter of the kernel takes it
	Ext4Size string
	XFSSize  string
	NodeSize string
	Cluster  *job.Cluster // nil: NFS only
	Verbose  bool         // tell of the guest's steps until the command runs
	CacheDir string
}

// ErrDeadline is why a run that took too long was ended.
var ErrDeadline = errors.New("the lab's deadline has passed")

var errPoweredOff = errors.New("powered off")

// The guest's descriptors behind standard input, output and error.
const (
	stdoutFD = 3 + iota
	stderrFD
	consoleFD
	extraFiles = iota
)

// Run boots the guest, runs the command in it and returns its exit code.
func Run(ctx context.Context, o Options) (int, error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("the lab has to run as root: it makes mount and PID namespaces")
	}
	if _, err := os.Stat(kernel); err != nil {
		return 0, fmt.Errorf("%w; `lab deps` installs it", err)
	}
	scratch, cleanup, err := o.scratch()
	if err != nil {
		return 0, err
	}
	code, err := o.boot(ctx, scratch)
	cleanup(err != nil && !errors.Is(err, context.Canceled))
	return code, err
}

// scratch creates the directory that the guest may write to. Its cleanup keeps the logs
// of a failed run.
func (o Options) scratch() (dir string, cleanup func(failed bool), err error) {
	dir = o.Scratch
	if dir == "" {
		if dir, err = os.MkdirTemp("", "nfs-csi-lab-"); err != nil {
			return "", nil, err
		}
	} else if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o755); err != nil {
		return "", nil, err
	}
	return dir, func(failed bool) {
		if o.Keep {
			fmt.Fprintf(os.Stderr, "lab: disks and logs are kept in %s\n", dir)
			return
		}
		for _, d := range o.disks() {
			os.Remove(filepath.Join(dir, d.name+".img"))
		}
		if failed {
			fmt.Fprintf(os.Stderr, "lab: logs are kept in %s\n", filepath.Join(dir, "logs"))
			return
		}
		if o.Scratch == "" {
			os.RemoveAll(dir)
		}
	}, nil
}

func (o Options) boot(ctx context.Context, scratch string) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, ErrDeadline)
	defer cancel()
	j, err := o.job()
	if err != nil {
		return 0, err
	}
	if err := errors.Join(job.Clear(scratch), j.Write(scratch)); err != nil {
		return 0, err
	}
	argv, err := o.kernelArgs(scratch, j.Terminal != nil)
	if err != nil {
		return 0, err
	}
	env, err := o.kernelEnv(ctx)
	if err != nil {
		return 0, err
	}
	if j.Terminal != nil {
		state, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return 0, err
		}
		defer term.Restore(int(os.Stdin.Fd()), state)
	}
	bootErr := runKernel(ctx, scratch, argv, env)
	code, err := outcome(ctx, scratch, bootErr)
	if err != nil && !errors.Is(err, context.Canceled) {
		showConsole(os.Stderr, consolePath(scratch))
	}
	return code, err
}

// outcome is what became of the guest's command: its exit code, or why there is none.
func outcome(ctx context.Context, scratch string, bootErr error) (int, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	result, err := job.ReadResult(scratch)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("the guest ended without a result (its kernel: %w)", cmp.Or(bootErr, errPoweredOff))
	case err != nil:
		return 0, err
	case result.Error != "":
		return 0, fmt.Errorf("guest: %s", result.Error)
	}
	return result.ExitCode, nil
}

func (o Options) job() (job.Job, error) {
	dir, err := os.Getwd()
	if err != nil {
		return job.Job{}, err
	}
	root, err := modules(o.CacheDir)
	if err != nil {
		return job.Job{}, err
	}
	j := job.Job{Command: o.Command, Dir: dir, Share: []string{repository(dir), o.CacheDir}, Env: o.Env, ModulesRoot: root, Cluster: o.Cluster, Verbose: o.Verbose}
	if o.Cluster != nil && len(o.Cluster.Images) > 0 {
		j.Share = append(j.Share, filepath.Dir(o.Cluster.Images[0]))
	}
	if len(o.Command) == 0 {
		if j.Terminal, err = terminal(); err != nil {
			return job.Job{}, err
		}
	}
	return j, nil
}

// terminal describes ours to the guest's shell. A command gets none, so that
// Ctrl-C is a signal to the lab, which ends the guest even if that hangs.
func terminal() (*job.Terminal, error) {
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return nil, errors.New("a shell in the guest needs a terminal; give a command after --")
	}
	cols, rows, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return nil, err
	}
	return &job.Terminal{Rows: uint16(rows), Cols: uint16(cols), Type: os.Getenv("TERM")}, nil
}

func (o Options) kernelArgs(scratch string, terminal bool) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stdin := "null"
	if terminal {
		stdin = "fd:0"
	}
	args := []string{
		kernel, "mem=" + o.Memory, "noreboot", "panic=-1", "uml_dir=/dev/shm/uml", "umid=lab",
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "init=" + self,
		"con=null", fmt.Sprintf("con0=null,fd:%d", consoleFD),
		"ssl=null", fmt.Sprintf("ssl0=%s,fd:%d", stdin, stdoutFD), fmt.Sprintf("ssl1=null,fd:%d", stderrFD),
	}
	for i, d := range o.disks() {
		path, err := d.make(scratch)
		if err != nil {
			return nil, err
		}
		args = append(args, fmt.Sprintf("ubd%c=%s", 'a'+i, path))
	}
	if i := slices.IndexFunc(args, func(a string) bool {
		return strings.ContainsAny(a, " ,") && !strings.HasPrefix(a, "con") && !strings.HasPrefix(a, "ssl")
	}); i >= 0 {
		return nil, fmt.Errorf("the kernel's command line cannot carry %q: no blanks or commas in the path of the lab or of the scratch directory", args[i])
	}
	return append(args, "--", GuestCommand, scratch), nil
}
