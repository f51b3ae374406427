package scripts

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// demo is run-demo with shell snippets for lab and make. In them, $target is the target to
// make, and $dir a directory shared with the test. The logs are in dir/logs.
func demo(t *testing.T, makes, boots string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	dir = t.TempDir()
	path, err := filepath.Abs(filepath.Join(hack, "run-demo"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "make"), "#!/bin/sh\nfor target; do :; done\n"+makes+"\n", 0o755)
	writeFile(t, filepath.Join(dir, "lab"), "#!/bin/sh\n"+boots+"\n", 0o755)
	cmd = exec.CommandContext(t.Context(), path, filepath.Join(dir, "lab"))
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "PREFLIGHT=off",
		"dir="+dir, "DEMO_LOGS="+filepath.Join(dir, "logs"), "DEMO_EVERY=1")
	return cmd, dir
}

func TestDemoReportsItsPhases(t *testing.T) {
	cmd, dir := demo(t, `seq -f "go: downloading module%g" 400; echo "made $target" >&2`, `echo "booted $*"`)
	out, err := cmd.CombinedOutput()
	output := string(out)
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if err != nil || strings.Contains(output, "downloading") || len(lines) != 8 || !strings.HasPrefix(lines[7], "booted cluster") {
		t.Fatalf("%v: it says %q", err, lines)
	}
	for i, phase := range []string{"[1/4] Build lab", "[2/4] Build the driver", "[3/4] Build Kubernetes"} {
		if !strings.HasPrefix(lines[2*i], phase) || !strings.HasPrefix(lines[2*i+1], phase) || !strings.Contains(lines[2*i+1], ": done in ") {
			t.Errorf("of %s it says %q", phase, lines[2*i:2*i+2])
		}
	}
	for _, target := range []string{"lab-deps", "lab-images", "lab-build"} {
		log, err := os.ReadFile(filepath.Join(dir, "logs", target+".log"))
		if err != nil || strings.Count(string(log), "downloading") != 400 || !strings.Contains(string(log), "made "+target) {
			t.Errorf("the log of %s is not whole: %v", target, err)
		}
	}
}

// The build ends only after the demo has reported its progress.
const buildsUntilTold = `test $target != lab-build || { echo "812 of 2313 packages"; until test -e "$dir/told"; do sleep 0.1; done; }`

func TestDemoReportsProgress(t *testing.T) {
	cmd, dir := demo(t, buildsUntilTold, "echo booted")
	mustTell(t, cmd, dir, regexp.MustCompile(`^ +\d+s  812 of 2313 packages$`), bufio.ScanLines)
}

func TestDemoOnATerminal(t *testing.T) {
	cmd, dir := demo(t, buildsUntilTold, "echo booted")
	cmd.Args = []string{"script", "-qec", strings.Join(cmd.Args, " "), "/dev/null"}
	terminal, err := exec.LookPath("script")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = terminal
	// Repeatedly in the same line.
	mustTell(t, cmd, dir, regexp.MustCompile(`^\x1b\[K\[3/4\] Build Kubernetes, once +\d+s  812 of 2313 packages$`), splitAtReturns)
}

// mustTell runs the demo until its output matches, and then to its end.
func mustTell(t *testing.T, cmd *exec.Cmd, dir string, want *regexp.Regexp, split bufio.SplitFunc) {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told, said := false, []string{}
	scanner := bufio.NewScanner(stdout)
	scanner.Split(split)
	for scanner.Scan() {
		said = append(said, scanner.Text())
		if !told && want.MatchString(scanner.Text()) {
			told = true
			writeFile(t, filepath.Join(dir, "told"), "", 0o644)
		}
	}
	if err := cmd.Wait(); err != nil || !told || !strings.Contains(strings.Join(said, "\n"), "booted") {
		t.Errorf("%v: it said %q, want what matches %v", err, said, want)
	}
}

// splitAtReturns splits lines that are overwritten on a terminal.
func splitAtReturns(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\r'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func TestDemoShowsWhyAPhaseFailed(t *testing.T) {
	cmd, dir := demo(t, `test $target != lab-images || { seq 100; echo "the reason"; exit 3; }`, "echo booted")
	out, err := cmd.CombinedOutput()
	output := string(out)
	if err == nil || strings.Contains(output, "booted") {
		t.Errorf("%v, and it goes on: %s", err, output)
	}
	if !strings.Contains(output, "[2/4] Build the driver and pack its images: FAILED") ||
		!strings.Contains(output, filepath.Join(dir, "logs", "lab-images.log")) || !strings.HasSuffix(output, "  | 100\n  | the reason\n") {
		t.Errorf("it says %s", output)
	}
}

// With "moves", the page becomes the one that the guest has written.
func TestMovesUpdateThePage(t *testing.T) {
	cmd, dir := demo(t, `echo "made $target"`, `echo "ran $*"; test "$3" = --scratch && echo new >"$4/migrate.md"`)
	page := filepath.Join(dir, "page.md")
	writeFile(t, page, "old\n", 0o644)
	cmd.Args = append(cmd.Args, "moves")
	cmd.Env = append(cmd.Env, "MOVES_PAGE="+page)
	out, err := cmd.CombinedOutput()
	output := string(out)
	if err != nil || !strings.Contains(output, "[4/5] Build the sidecars, once, and the moves: done in ") || !strings.Contains(output, "ran cluster ") {
		t.Errorf("%v: it says %s", err, output)
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != "new\n" {
		t.Errorf("the page is %q, %v", got, err)
	}
}

func TestMovesLeaveThePageIfTheyFail(t *testing.T) {
	cmd, dir := demo(t, "true", `echo new >"$4/migrate.md"; exit 1`)
	page := filepath.Join(dir, "page.md")
	writeFile(t, page, "old\n", 0o644)
	cmd.Args = append(cmd.Args, "moves")
	cmd.Env = append(cmd.Env, "MOVES_PAGE="+page)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("it succeeds: %s", out)
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != "old\n" {
		t.Errorf("the page is %q, %v", got, err)
	}
}
