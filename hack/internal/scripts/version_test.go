package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// Two commits never have the same version.
func TestVersion(t *testing.T) {
	repository := t.TempDir()
	env := []string{
		"GIT_DIR=" + filepath.Join(repository, ".git"), "GIT_WORK_TREE=" + repository, "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Env = append(os.Environ(), env...)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, output)
		}
	}
	version := func(pattern string) string {
		t.Helper()
		output, code := script(t, env, hack+"/version", "v1.2.3")
		if code != 0 || !regexp.MustCompile("^"+pattern+"\n$").MatchString(output) {
			t.Errorf("exit code %d, version %q, want %s", code, output, pattern)
		}
		return output
	}
	version("v1.2.3-unknown") // no repository
	git("init", "--quiet")
	file := filepath.Join(repository, "file")
	writeFile(t, file, "1", 0o600)
	git("add", "file")
	git("commit", "--quiet", "--message=one")
	one := version("v1.2.3-g[0-9a-f]{12}")
	writeFile(t, file, "2", 0o600)
	version("v1.2.3-g[0-9a-f]{12}-dirty")
	git("commit", "--quiet", "--all", "--message=two")
	if two := version("v1.2.3-g[0-9a-f]{12}"); two == one {
		t.Errorf("two commits have the version %s", two)
	}
	git("tag", "v1.2.30")
	version("v1.2.3-g[0-9a-f]{12}")
	git("tag", "v1.2.3")
	version("v1.2.3")
}
