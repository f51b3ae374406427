package scripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testAll runs test-all with a make that only prints the file named after the target.
func testAll(t *testing.T, suites map[string]string, lanes ...string) (output string, code int, logs string) {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "bin", "make"), `#!/bin/sh
		for target; do case $target in test-*) break;; esac; done
		cat "`+dir+`/$target" && ! grep -q "^FAIL" "`+dir+`/$target"
	`, 0o755)
	writeFile(t, filepath.Join(dir, "test-needs"), "", 0o644)
	for suite, log := range suites {
		writeFile(t, filepath.Join(dir, "test-"+suite), log, 0o644)
	}
	logs = filepath.Join(dir, "logs")
	env := []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "TEST_LOGS=" + logs, "PREFLIGHT=off"}
	output, code = script(t, env, filepath.Join(hack, "test-all"), lanes...)
	return output, code, logs
}

func TestAllSuitesAreCounted(t *testing.T) {
	const (
		good = "=== RUN   TestA\n=== RUN   TestA/x\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/x (0.00s)\nPASS\n"
		mix  = good + "=== RUN   TestB\n    b_test.go:1: why\n--- FAIL: TestB (0.00s)\n=== RUN   TestC\n--- SKIP: TestC (0.00s)\n"
	)
	for _, c := range []struct {
		what   string
		suites map[string]string
		want   string
		code   int
	}{
		{"all pass", map[string]string{"one": good, "two": good, "three": good}, "3 passed, 0 failed, 0 skipped", 0},
		{"a test fails", map[string]string{"one": good, "two": mix + "FAIL\n", "three": good}, "3 passed, 1 failed, 1 skipped", 1},
		{"a suite does not build", map[string]string{"one": good, "two": "FAIL x [build failed]\n", "three": good}, "2 passed, 1 failed, 0 skipped", 1},
		{"a suite runs nothing", map[string]string{"one": good, "two": "ok x [no tests to run]\n", "three": good}, "2 passed, 1 failed, 0 skipped", 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			output, code, logs := testAll(t, c.suites, "one two", "three")
			if code != c.code || lastLine(output) != c.want {
				t.Errorf("exit code %d, want %d; the last line is %q, want %q", code, c.code, lastLine(output), c.want)
			}
			summary, err := os.ReadFile(filepath.Join(logs, "summary"))
			if err != nil || string(summary) != c.want+"\n" {
				t.Errorf("the summary has %q, %v", summary, err)
			}
			if failed := strings.Contains(output, "==> failed in test-two"); failed != (c.code != 0) {
				t.Errorf("failures reported: %v, in:\n%s", failed, output)
			}
		})
	}
}
