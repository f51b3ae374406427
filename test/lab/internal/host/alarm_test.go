package host

import (
	"errors"
	"os/exec"
	"testing"
)

func TestAlarmReachesItsProcess(t *testing.T) {
	err := runAwake(exec.Command("sh", "-c", `trap "exit 7" ALRM; while :; do sleep 0.01; done`))
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 7 {
		t.Errorf("got %v, want the exit code of its handler", err)
	}
}

func TestAlarmEndsNoProcess(t *testing.T) {
	if err := runAwake(exec.Command("sleep", "0.6")); err != nil {
		t.Errorf("a process without a handler: %v", err)
	}
}
