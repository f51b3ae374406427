package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// specProcesses is how many specs run at a time: most of a spec is waiting.
const specProcesses = 4

// specRun is a run of upstream's test binary by ginkgo.
type specRun struct {
	programs       string // the directory of both
	driverFile     string
	focus, skip    string // regular expressions
	labels         string // an expression of Ginkgo's
	skips          *regexp.Regexp
	preprovisioned bool
	parallel       bool
}

// run makes a subtest of each spec, as it begins.
func (r specRun) run(t *testing.T, sshKey string) (specs int, err error) {
	driverFile, err := filepath.Abs("../conformance/" + r.driverFile)
	if err != nil {
		return 0, err
	}
	socket := filepath.Join(t.TempDir(), "results")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return 0, err
	}
	var output bytes.Buffer
	command := exec.CommandContext(t.Context(), filepath.Join(r.programs, "ginkgo"), r.args(driverFile, socket)...)
	command.Env = append(os.Environ(), "KUBE_SSH_KEY_PATH="+sshKey, "KUBE_SSH_USER=root")
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		listener.Close()
		return 0, err
	}
	ended := make(chan error, 1)
	go func() {
		// Before the first spec, every process connects.
		ended <- errors.Join(command.Wait(), listener.Close())
	}()
	specs, err = reportSpecs(t, listener, r.skips)
	err = errors.Join(err, <-ended)
	if err != nil && !t.Failed() {
		t.Logf("output of ginkgo: %s", output.String())
	}
	return specs, err
}

func (r specRun) args(driverFile, results string) []string {
	args := []string{"--focus=External.Storage.*(?:" + r.focus + ")", "--timeout=24h", "--no-color"}
	if r.skip != "" {
		args = append(args, "--skip="+r.skip)
	}
	if r.labels != "" {
		args = append(args, "--label-filter="+r.labels)
	}
	if r.parallel {
		args = append(args, "--procs="+strconv.Itoa(specProcesses))
	}
	args = append(args, filepath.Join(r.programs, "conformance.test"), "--",
		"-storage.testdriver="+driverFile, "-results="+results,
		"-kubeconfig="+os.Getenv("KUBECONFIG"), "-provider=skeleton")
	if r.preprovisioned {
		args = append(args, "-preprovisioned")
	}
	return args
}

// documentedSkips are the reasons for skips that docs/conformance.md gives, where "..." is
// any text. Any other skip is a failure: the setup lacks what a spec needs.
func documentedSkips(t *testing.T) *regexp.Regexp {
	t.Helper()
	doc, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "\n| Message | ")
	table, _, _ = strings.Cut(table, "\n\n")
	var reasons []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(.+?)` \\|.*\\|$").FindAllStringSubmatch(table, -1) {
		reasons = append(reasons, strings.ReplaceAll(regexp.QuoteMeta(row[1]), `\.\.\.`, ".*"))
	}
	if len(reasons) == 0 {
		t.Fatal("docs/conformance.md has no reasons for skips")
	}
	return regexp.MustCompile(strings.Join(reasons, "|"))
}

// specReport is what a process of the suite writes at the start and at the end of a spec.
type specReport struct {
	Name    string
	State   string // empty at the start
	Message string // why the spec failed or was skipped
	Output  string // what a failed spec has written
}

// reportSpecs returns when the listener is closed and all of its connections have ended.
func reportSpecs(t *testing.T, listener net.Listener, skips *regexp.Regexp) (specs int, err error) {
	var processes sync.WaitGroup
	var mu sync.Mutex
	for {
		conn, acceptErr := listener.Accept()
		if acceptErr != nil {
			break
		}
		processes.Go(func() {
			defer conn.Close()
			n, connErr := reportProcess(t, conn, skips)
			mu.Lock()
			defer mu.Unlock()
			specs += n
			err = errors.Join(err, connErr)
		})
	}
	processes.Wait()
	return specs, err
}

// reportProcess runs a subtest from each spec's start to its end.
func reportProcess(t *testing.T, reports io.Reader, skips *regexp.Regexp) (specs int, err error) {
	next := json.NewDecoder(reports)
	for {
		var start specReport
		switch err := next.Decode(&start); {
		case errors.Is(err, io.EOF):
			return specs, nil
		case err != nil:
			return specs, fmt.Errorf("results: %w", err)
		}
		specs++
		t.Run(start.Name, func(t *testing.T) { reportSpec(t, start.Name, next, skips) })
	}
}

func reportSpec(t *testing.T, name string, next *json.Decoder, skips *regexp.Regexp) {
	var end specReport
	started := time.Now()
	if err := next.Decode(&end); err != nil {
		t.Fatalf("the suite ended during the spec %s: %v", name, err)
	}
	// Named here, since the result itself is printed at the end of all.
	took := time.Since(started).Round(time.Second)
	switch {
	case end.Name != name:
		t.Fatalf("during the spec %s, the suite continued with %s", name, end.Name)
	case end.State == "passed":
		t.Logf("passed after %s: %s", took, name)
	case end.State == "skipped" && skips.MatchString(end.Message):
		t.Skipf("skipped: %s: %s", name, strings.TrimSpace(end.Message))
	default:
		t.Errorf("%s after %s: %s: %s\n%s", end.State, took, name, end.Message, end.Output)
	}
}
