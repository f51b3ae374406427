package tree

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// removalVariable makes this program only remove a tree.
const removalVariable = "TREE_TEST_REMOVAL"

type (
	// removalOrder says what such a process has to remove.
	removalOrder struct {
		Name    string
		Workers int
		Files   uint64 // how many it may have open
		dir     string
		uid     uint32
	}
	// removalReport is its result.
	removalReport struct {
		Removed  int64
		Left, By string // the path and why
		Err      string // any other error
		PeakMiB  float64
	}
)

func removeInChild() error {
	var o removalOrder
	if err := json.Unmarshal([]byte(os.Getenv(removalVariable)), &o); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: o.Files, Max: o.Files}); err != nil {
		return err
	}
	in := os.NewFile(3, "in") // the first of ExtraFiles
	defer in.Close()
	var report removalReport
	var left *LeftError
	var err error
	report.Removed, err = Removal{Workers: o.Workers}.Remove(context.Background(), in, o.Name)
	if errors.As(err, &left) {
		report.Left, report.By = left.Path, left.Err.Error()
	} else if err != nil {
		report.Err = err.Error()
	}
	if report.PeakMiB, err = peakRSS(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

// run removes a tree in a child process.
func (o removalOrder) run(t *testing.T) removalReport {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(o.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.ExtraFiles = []*os.File{in} // to which nobody may have no path
	cmd.Env = append(os.Environ(), removalVariable+"="+string(b))
	if o.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: o.uid, Gid: o.uid}}
	}
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("%v: %.2000s", err, exit.Stderr)
	}
	var report removalReport
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	return report
}
