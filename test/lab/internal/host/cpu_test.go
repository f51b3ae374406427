package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGuestsHaveSeparateProcessors(t *testing.T) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	dirs := t.TempDir()
	for cpu := range 64 * len(may) {
		if err := os.Mkdir(filepath.Join(dirs, fmt.Sprintf("cpu%d", cpu)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	all := cpusOfAChild(t)
	seen := map[string]bool{}
	var guest func(left int) error
	guest = func(left int) error {
		cpus := cpusOfAChild(t)
		if left == 0 {
			if cpus != all {
				t.Errorf("a guest too many runs on processors %s, want %s", cpus, all)
			}
			return nil
		}
		if seen[cpus] || strings.ContainsAny(cpus, ",-") {
			t.Errorf("a guest runs on processors %s, others on %v", cpus, seen)
		}
		seen[cpus] = true
		result := make(chan error)
		go func() { result <- onOneCPU(dirs, func() error { return guest(left - 1) }) }()
		return <-result
	}
	if err := onOneCPU(dirs, func() error { return guest(may.Count()) }); err != nil {
		t.Fatal(err)
	}
}

// cpusOfAChild are the processors that a process may use which is started here, as
// proc(5) lists them.
func cpusOfAChild(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sed", "-n", `s/^Cpus_allowed_list:\s*//p`, "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
