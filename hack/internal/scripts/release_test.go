package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const changelog = `# Changelog

## [Unreleased]

### Added

- Soon.

## [0.2.0] - 2026-12-01

### Fixed

- A bug, see [1].

## [0.2.0-rc.1] - 2026-11-30

[Unreleased]: https://example.com/compare
[0.2.0]: https://example.com/tag
`

func TestReleaseNotes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "changelog.md")
	writeFile(t, file, changelog, 0o600)
	for version, want := range map[string]string{
		"v0.2.0":               "### Fixed\n\n- A bug, see [1].\n",
		"v0.2.0-g1a2b3c4d5e6f": "### Added\n\n- Soon.\n",
	} {
		if output, code := script(t, nil, hack+"/release-notes", version, file); code != 0 || output != want {
			t.Errorf("%s: exit code %d, printed %q, want %q", version, code, output, want)
		}
	}
	for _, version := range []string{"v0.3.0", "v0.2.0-rc.1", "v0.2"} {
		output, code := script(t, nil, hack+"/release-notes", version, file)
		if version == "v0.2" {
			// Not a release, so it is about what is not released yet.
			if code != 0 {
				t.Errorf("%s: exit code %d: %s", version, code, output)
			}
			continue
		}
		if code == 0 || !strings.Contains(output, "["+version[1:]+"]") {
			t.Errorf("%s: exit code %d, printed %q, want an error about the heading", version, code, output)
		}
	}
}

// release-check reports everything that is missing at once.
func TestReleaseCheck(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "docs/changelog.md"), changelog, 0o600)
	check, err := filepath.Abs(hack + "/release-check")
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		output, err := cmd.CombinedOutput()
		return string(output), err
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"commit", "--quiet", "--message=one"}, {"tag", "v0.2.0"}} {
		if output, err := run("git", args...); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, output)
		}
	}
	if output, err := run(check, "v0.2.0", "v0.2.0"); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	writeFile(t, filepath.Join(dir, "docs/changelog.md"), changelog+"\n", 0o600)
	output, err := run(check, "0.3.0", "v0.2.0")
	for _, want := range []string{"VERSION=0.3.0: want vMAJOR", "does not have the tag 0.3.0", "files have changed", "have the tag v0.2.0, not 0.3.0"} {
		if err == nil || !strings.Contains(output, want) {
			t.Errorf("%v: %q does not have %q", err, output, want)
		}
	}
	output, err = run(check, "v0.3.0", "v0.3.0")
	if err == nil || !strings.Contains(output, "[0.3.0]") {
		t.Errorf("%v: %q does not have the missing heading", err, output)
	}
}

// release-sign signs by digest, and attests the SBOM of what has one.
func TestReleaseSign(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(bin, "cosign"), "#!/bin/sh\necho \"$@\"\n", 0o755)
	writeFile(t, filepath.Join(dir, "pushed.txt"), "example.com/a/app@sha256:12\nexample.com/a/charts/chart@sha256:34\n", 0o600)
	writeFile(t, filepath.Join(dir, "app.spdx.json"), "{}", 0o600)
	output, code := script(t, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, hack+"/release-sign", dir)
	want := `sign --yes example.com/a/app@sha256:12
attest --yes --type spdxjson --predicate app.spdx.json example.com/a/app@sha256:12
sign --yes example.com/a/charts/chart@sha256:34
sign-blob --yes --bundle SHA256SUMS.sigstore.json SHA256SUMS
`
	if code != 0 || output != want {
		t.Errorf("exit code %d, cosign was called with\n%s\nwant\n%s", code, output, want)
	}
	writeFile(t, filepath.Join(bin, "cosign"), "#!/bin/sh\nexit 1\n", 0o755)
	if _, code := script(t, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, hack+"/release-sign", dir); code == 0 {
		t.Error("exit code 0 although cosign failed")
	}
}
