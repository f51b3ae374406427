// Package job is what the host tells the guest to do, and what the guest says
// back. It travels as JSON files in the scratch directory, the one place both
// sides can write.
package job

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// ScratchDir is where the guest finds the scratch directory.
const ScratchDir = "/scratch"

const (
	jobFile    = "job.json"
	resultFile = "result.json"
)

// Serial lines of the guest, as the kernel command line wires them.
const (
	StdoutLine = "/dev/ttyS0" // also standard input, when there is a terminal
	StderrLine = "/dev/ttyS1"
)

// Job is one boot of the guest.
type Job struct {
	// Command and its arguments; empty opens a shell.
	Command []string `json:"command,omitempty"`
	// Share are paths of the host that the guest has to see, read-only and under
	// the same names, even if they lie in a directory that it has of its own.
	Share []string `json:"share"`
	// Dir is the working directory, below one of those.
	Dir string   `json:"dir"`
	Env []string `json:"env"`
	// Terminal is set when standard input and output are a terminal.
	Terminal *Terminal `json:"terminal,omitempty"`
	// Verbose has the guest tell of its own steps on standard error as well.
	Verbose bool `json:"verbose,omitempty"`
	// ModulesRoot holds lib/modules/VERSION for the guest's kernel.
	ModulesRoot string `json:"modulesRoot"`
	// Cluster is set when the guest is to be a Kubernetes node as well.
	Cluster *Cluster `json:"cluster,omitempty"`
}

// Terminal is the size of the caller's terminal and its type.
type Terminal struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
	Type string `json:"type"`
}

// Cluster is what a Kubernetes node needs from the host.
type Cluster struct {
	// Kube is the multi-call binary of ../../kube.
	Kube string `json:"kube"`
	// Images are tar archives to import into containerd.
	Images []string `json:"images"`
}

// Result is the outcome of a Job.
type Result struct {
	// ExitCode of the command, 128+N when signal N ended it.
	ExitCode int `json:"exitCode"`
	// Error says why the command could not be run at all.
	Error string `json:"error,omitempty"`
}

// Write leaves the job in a scratch directory.
func (j Job) Write(scratch string) error { return write(filepath.Join(scratch, jobFile), j) }

// Read takes the job from a scratch directory.
func Read(scratch string) (Job, error) {
	var j Job
	return j, read(filepath.Join(scratch, jobFile), &j)
}

// Write leaves the result in a scratch directory.
func (r Result) Write(scratch string) error { return write(filepath.Join(scratch, resultFile), r) }

// ReadResult takes the result from a scratch directory.
func ReadResult(scratch string) (Result, error) {
	var r Result
	return r, read(filepath.Join(scratch, resultFile), &r)
}

// Clear removes what an earlier boot left in a scratch directory.
func Clear(scratch string) error {
	for _, name := range []string{jobFile, resultFile} {
		if err := os.Remove(filepath.Join(scratch, name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func write(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func read(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}
