// Package boot tests the lab by booting it: what the guest offers, what it may
// not do, and how it ends. LAB_BINARY is the lab; `make test-lab` sets it.
package boot

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// run is one boot, to its end.
type run struct {
	code           int
	stdout, stderr string
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	lab := os.Getenv("LAB_BINARY")
	if lab == "" {
		t.Fatal("LAB_BINARY is not set: run `make test-lab`")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, lab, append([]string{"nfs", "--ext4-size=256M", "--xfs-size=512M", "--memory=1G"}, args...)...)
}

func boot(t *testing.T, args ...string) run {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := command(t, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := run{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	t.Logf("exit code %d\nstdout: %s\nstderr: %s", r.code, end(r.stdout), end(r.stderr))
	return r
}

// end is as much of a program's output as a reader of the log wants to see.
func end(output string) string { return output[max(0, len(output)-4096):] }

// running counts the processes of the kernels that use a scratch directory.
func running(t *testing.T, scratch string) int {
	t.Helper()
	return len(kernels(t, scratch))
}

// kernels are the processes of the kernels that use a scratch directory, the first of
// each before those that it started.
func kernels(t *testing.T, scratch string) []int {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, path := range found {
		cmdline, err := os.ReadFile(path)
		if err == nil && bytes.HasPrefix(cmdline, []byte("/usr/bin/linux.uml")) && bytes.Contains(cmdline, []byte(scratch)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

func TestBothExportsOverBothVersions(t *testing.T) {
	r := boot(t, "--", "sh", "-ec", `
		mkdir /tmp/m
		for export in $LAB_EXPORT_EXT4 $LAB_EXPORT_XFS; do for vers in 3 4.2; do
			mount -t nfs -o vers=$vers $LAB_NFS_SERVER:$export /tmp/m
			echo over-nfs-$vers > /tmp/m/file
			cat $export/file
			umount /tmp/m
		done; done
		mount -t nfs4 "[::1]:$LAB_EXPORT_XFS" /tmp/m && cat /tmp/m/file && umount /tmp/m
		cp --reflink=always $LAB_EXPORT_XFS/file $LAB_EXPORT_XFS/clone && echo reflink
		grep -o "$LAB_EXPORT_XFS.*prjquota" /proc/mounts
		echo to-stderr >&2
		exit 7`)
	if r.code != 7 {
		t.Errorf("exit code %d, want that of the command, 7", r.code)
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 7 || strings.Join(lines[:6], " ") != "over-nfs-3 over-nfs-4.2 over-nfs-3 over-nfs-4.2 over-nfs-4.2 reflink" {
		t.Errorf("stdout: %q", lines)
	}
	if !strings.Contains(r.stderr, "to-stderr") || strings.Contains(r.stdout, "to-stderr") {
		t.Errorf("standard error was not kept apart")
	}
}

func TestOutputIsWhole(t *testing.T) {
	r := boot(t, "--", "seq", "1", "50000")
	if lines := strings.Count(r.stdout, "\n"); lines != 50000 || !strings.HasSuffix(r.stdout, "\n50000\n") {
		t.Errorf("%d lines, want 50000; the end is %q", lines, r.stdout[max(0, len(r.stdout)-20):])
	}
}

// What keeps the guest quick: see docs/lab.md.
func TestProgramsSleepLonger(t *testing.T) {
	if got := boot(t, "--", "cat", "/proc/self/timerslack_ns").stdout; got != "1000000\n" {
		t.Errorf("a program has a timer slack of %q ns, want 1000000", got)
	}
}

func TestMissingCommand(t *testing.T) {
	if r := boot(t, "--", "no-such-command"); r.code != 125 || !strings.Contains(r.stderr, "no-such-command") {
		t.Errorf("exit code %d, want 125 and the command's name", r.code)
	}
}

func TestHostIsReadOnly(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	r := boot(t, "--scratch", scratch, "--", "sh", "-c", `
		mkdir /tmp/again && mount -t hostfs none /tmp/again -o /
		for dir in "`+here+`" "/host`+here+`" "/tmp/again`+here+`" /usr; do
			touch "$dir/written-by-the-guest" && echo "wrote to $dir"
		done
		touch $LAB_SCRATCH/allowed`)
	if strings.Contains(r.stdout, "wrote") || strings.Count(r.stderr, "Read-only file system") != 4 {
		t.Error("the guest wrote to the host")
	}
	if _, err := os.Stat(filepath.Join(here, "written-by-the-guest")); err == nil {
		t.Error("a file of the guest's is on the host")
	}
	if _, err := os.Stat(filepath.Join(scratch, "allowed")); err != nil {
		t.Error("the scratch directory cannot be written to: ", err)
	}
}

func TestKeptDisksSurviveACrash(t *testing.T) {
	scratch := t.TempDir()
	r := boot(t, "--scratch", scratch, "--keep", "--", "sh", "-c",
		"echo kept | tee /export/ext4/f > /export/xfs/f; sync; echo b > /proc/sysrq-trigger; sleep 60")
	if r.code != 125 || !strings.Contains(r.stderr, "without a result") {
		t.Errorf("a crash of the guest gave exit code %d, want 125 and the reason", r.code)
	}
	r = boot(t, "--scratch", scratch, "--", "cat", "/export/ext4/f", "/export/xfs/f")
	if r.code != 0 || r.stdout != "kept\nkept\n" {
		t.Errorf("after the crash: exit code %d, %q", r.code, r.stdout)
	}
	if left, _ := filepath.Glob(scratch + "/*.img"); len(left) != 0 {
		t.Errorf("disks left without --keep: %v", left)
	}
}

func TestDeadline(t *testing.T) {
	scratch := t.TempDir()
	r := boot(t, "--scratch", scratch, "--timeout=8s", "--", "sleep", "600")
	logs := filepath.Join(scratch, "logs")
	if r.code != 125 || !strings.Contains(r.stderr, "deadline") || !strings.Contains(r.stderr, logs) {
		t.Errorf("exit code %d, want 125, the deadline and %s named", r.code, logs)
	}
	mustShowConsole(t, r, scratch, "start the NFS server: done")
	if n := running(t, scratch); n != 0 {
		t.Errorf("%d kernels still run", n)
	}
}

func TestSignalsLeaveNothingRunning(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			scratch := t.TempDir()
			cmd := command(t, "--scratch", scratch, "--", "sh", "-c", "touch /scratch/up; sleep 600")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			await(t, "the guest", func() bool { _, err := os.Stat(filepath.Join(scratch, "up")); return err == nil })
			if running(t, scratch) == 0 {
				t.Fatal("found no kernel to end: the test looks in the wrong place")
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			await(t, "the kernels to end", func() bool { return running(t, scratch) == 0 })
		})
	}
}

func TestShell(t *testing.T) {
	cmd := command(t)
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if _, err := terminal.WriteString("echo sum=$((6*7)) on $(uname -r); exit 5\n"); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	_, _ = seen.ReadFrom(terminal) // ends in EIO when the other end is closed
	_ = cmd.Wait()
	if !strings.Contains(seen.String(), "sum=42 on 6.") || cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("exit code %d, screen: %q", cmd.ProcessState.ExitCode(), seen.String())
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("waited a minute for %s", what)
		case <-tick.C:
		}
	}
}
