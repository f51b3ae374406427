package scripts

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCountGoTests(t *testing.T) {
	for _, c := range []struct{ what, body, want string }{
		{"tests", `func TestA(t *testing.T) {}
			func TestB(t *testing.T) { t.Error() }
			func TestC(t *testing.T) { t.Skip() }`, "2 1 1"},
		{"a parent is not counted", `func TestA(t *testing.T) {
			t.Run("x", func(t *testing.T) { t.Run("y", func(t *testing.T) {}); t.Run("z", func(t *testing.T) { t.Skip() }) })
			t.Run("w", func(t *testing.T) { t.Error() }) }`, "2 1 1"},
		{"a parent that failed itself is", `func TestA(t *testing.T) { t.Run("x", func(t *testing.T) {}); t.Error() }`, "2 1 0"},
		{"slashes in names", `func TestA(t *testing.T) { t.Run("x/y", func(t *testing.T) {}); t.Run("x", func(t *testing.T) {}) }`, "3 0 0"},
		{"in parallel", `func TestA(t *testing.T) { for range 3 { t.Run("x", func(t *testing.T) { t.Parallel() }) } }
			func TestB(t *testing.T) { t.Parallel() }`, "5 0 0"},
		{"a line that is not ended", `func TestA(t *testing.T) { fmt.Print("no newline") }
			func TestB(t *testing.T) { fmt.Print("nor here") }`, "3 0 0"},
		{"what a test prints of another", `func TestA(t *testing.T) { t.Log("--- FAIL: TestX (0.00s)") }`, "2 0 0"},
		{"none", ``, "1 0 0"},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			source := "package x\nimport (\"fmt\"; \"testing\")\nvar _ = fmt.Print\nvar _ testing.TB\n" + c.body
			writeFile(t, filepath.Join(dir, "go.mod"), "module x\ngo 1.26\n", 0o644)
			writeFile(t, filepath.Join(dir, "a_test.go"), source, 0o644)
			// Another package has a test of the same name, which passes.
			writeFile(t, filepath.Join(dir, "b", "b_test.go"), "package x\nimport \"testing\"\nfunc TestA(t *testing.T) {}\n", 0o644)
			cmd := exec.CommandContext(t.Context(), "go", "test", "-v", ".", "./b")
			cmd.Dir = dir
			log, _ := cmd.CombinedOutput()
			if !strings.Contains(string(log), "ok  \tx/b") {
				t.Fatalf("go test: %s", log)
			}
			mustCount(t, string(log), c.want)
		})
	}
}

func TestCountGinkgoSpecs(t *testing.T) {
	const specs = "\x1b[1mSUCCESS!\x1b[0m -- \x1b[38;5;10m\x1b[1m82 Passed\x1b[0m | \x1b[1m%s Failed\x1b[0m | 1 Pending | 20 Skipped"
	for _, c := range []struct{ what, failed, result, want string }{
		{"all pass", "0", "PASS", "82 0 21"},
		{"a spec fails", "2", "FAIL", "82 2 21"},
		{"the test around them fails", "0", "FAIL", "82 1 21"},
	} {
		log := "=== RUN   TestSanity\n" + strings.Replace(specs, "%s", c.failed, 1) + "\n--- " + c.result + ": TestSanity (0.76s)\n"
		t.Run(c.what, func(t *testing.T) { mustCount(t, log, c.want) })
	}
}

func TestCountSpecsByGroup(t *testing.T) {
	const driver = "TestConformance/External_Storage_[Driver:_nfs.csi.internal]_[Testpattern:_"
	path := filepath.Join(t.TempDir(), "log")
	writeFile(t, path, `=== RUN   `+driver+`Dynamic_PV_(default_fs)]_volumes_should_store_data
    specs_test.go:1: passed after 20s: External Storage [Testpattern: Dynamic PV] subPath should work
--- FAIL: TestConformance (60.00s)
    --- PASS: `+driver+`Dynamic_PV_(default_fs)]_volumes_should_store_data (20.30s)
    --- FAIL: `+driver+`Dynamic_PV_(xfs)]_[Slow]_volumes_should_store_data (10.30s)
    --- SKIP: `+driver+`Dynamic_PV_(ntfs)]_[Feature:Windows]_subPath_should_support_read/write_[LinuxOnly] (0.00s)
    --- PASS: `+driver+`Dynamic_PV_(block_volmode)(allowExpansion)]_volume-expand_should_resize_[Slow] (30.00s)
`, 0o644)
	got, code := script(t, nil, filepath.Join(hack, "count-specs"), path)
	const want = `group                            passed failed skipped seconds
subPath                               0      0       1       0
volume-expand                         1      0       0      30
volumes                               1      1       0      31
`
	if code != 0 || got != want {
		t.Errorf("exit code %d, got\n%swant\n%s", code, got, want)
	}
}

func mustCount(t *testing.T, log, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	writeFile(t, path, log, 0o644)
	got, code := script(t, nil, filepath.Join(hack, "count-tests"), path)
	if code != 0 || got != want+"\n" {
		t.Errorf("got %q, exit code %d, want %q, of:\n%s", got, code, want, log)
	}
}
