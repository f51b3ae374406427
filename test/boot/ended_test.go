package boot

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Whatever ends a guest early, the lab says so and shows what its console said last.
func TestGuestEndsEarly(t *testing.T) {
	for _, c := range []struct {
		what, memory, script, console string
	}{
		{"panic", "256M", "echo c > /proc/sysrq-trigger; sleep 60", "Kernel panic - not syncing: sysrq triggered crash"},
		{"out of memory", "256M", "echo 1 > /proc/sys/vm/panic_on_oom; tail /dev/zero", "Kernel panic - not syncing: Out of memory"},
		{"no memory to boot with", "4M", "true", "Too few physical memory"},
	} {
		t.Run(c.what, func(t *testing.T) {
			scratch := t.TempDir()
			r := boot(t, "--memory="+c.memory, "--scratch", scratch, "--", "sh", "-c", c.script)
			mustShowConsole(t, r, scratch, c.console)
		})
	}
}

func TestGuestCannotBeSetUp(t *testing.T) {
	scratch := t.TempDir()
	if err := os.WriteFile(filepath.Join(scratch, "xfs.img"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r := boot(t, "--scratch", scratch, "--", "true")
	mustShowConsole(t, r, scratch, "lab guest: set up the network: done")
	if !strings.Contains(r.stderr, "mount /dev/ubdb") {
		t.Error("the reason is not named")
	}
}

func TestKernelIsKilled(t *testing.T) {
	scratch := t.TempDir()
	var stderr bytes.Buffer
	cmd := command(t, "--scratch", scratch, "--", "sh", "-c", "touch /scratch/up; sleep 600")
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the guest", func() bool { _, err := os.Stat(filepath.Join(scratch, "up")); return err == nil })
	if err := syscall.Kill(kernels(t, scratch)[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	mustShowConsole(t, run{cmd.ProcessState.ExitCode(), "", stderr.String()}, scratch, "signal: killed")
}

// mustShowConsole checks that the end of the console is in the lab's own output, no
// more than 30 lines of it, and where the rest is.
func mustShowConsole(t *testing.T, r run, scratch, want string) {
	t.Helper()
	if r.code != 125 {
		t.Errorf("exit code %d, want 125", r.code)
	}
	path := filepath.Join(scratch, "logs", "console.log")
	var shown []string
	for line := range strings.Lines(r.stderr) {
		if line, ok := strings.CutPrefix(line, "  | "); ok {
			shown = append(shown, line)
		}
	}
	if len(shown) < 10 || len(shown) > 30 || !strings.Contains(strings.Join(shown, ""), want) {
		t.Errorf("%d lines of the console are shown, want 10 to 30 with %q:\n%s", len(shown), want, r.stderr)
	}
	if !strings.Contains(r.stderr, path) {
		t.Errorf("%s is not named", path)
	}
	whole, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(whole, []byte(want)) {
		t.Errorf("%s lacks %q: %v", path, want, err)
	}
}
