package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// link puts this test's own executable, which Go built, where an image's program is expected.
func link(t *testing.T, dir, name string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, name, string(content))
}

func TestPackFiles(t *testing.T) {
	dir := t.TempDir()
	app := write(t, dir, "app", "binary")
	out := filepath.Join(dir, "image.tar")
	args := []string{"pack", "--name", "example.com/app:v1", "--file", app + ":/bin/app", "--link", "app:/bin/sh", "--dir", "/tmp", "--out", out}
	if err := run(args, io.Discard); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(out); err != nil || info.Size() == 0 {
		t.Errorf("no image: %v", err)
	}
}

// An image for two architectures, with its SBOM, and what is printed about it.
func TestPackProduct(t *testing.T) {
	dir := t.TempDir()
	link(t, dir, "linux-amd64/nfsplugin")
	link(t, dir, "linux-arm64/nfsplugin")
	args := []string{"product", "--image", "nfsplugin", "--binaries", dir, "--arch", "amd64", "--arch", "arm64",
		"--name", "example.com/app:v1", "--version", "v1", "--date", "2026-01-02T03:04:05Z", "--out", filepath.Join(dir, "image.tar")}
	var printed strings.Builder
	if err := run(args, &printed); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^nfsplugin +linux/amd64 +([0-9.]+) MB
nfsplugin +linux/arm64 +([0-9.]+) MB
nfsplugin +sha256:([0-9a-f]{64})
$`).FindStringSubmatch(printed.String())
	if want == nil || want[1] == "0.0" || want[1] != want[2] {
		t.Fatalf("printed %q", printed.String())
	}
	bill, err := os.ReadFile(filepath.Join(dir, "image.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{want[3], `"created": "2026-01-02T03:04:05Z"`, "linux/arm64", "pkg:golang/github.com/spf13/pflag@"} {
		if !strings.Contains(string(bill), part) {
			t.Errorf("the SBOM does not have %s", part)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "image.tar")
	link(t, dir, "linux-amd64/nfsplugin")
	write(t, dir, "linux-amd64/csi-provisioner", "not built by Go")
	product := []string{"product", "--name", "a:b", "--out", out, "--binaries", dir, "--arch", "amd64"}
	for name, args := range map[string][]string{
		"no command":          {},
		"unknown command":     {"pull"},
		"nothing to push":     {"push"},
		"missing archive":     {"push", out},
		"unknown flag":        {"pack", "--nonsense"},
		"no out":              {"pack", "--name", "a:b"},
		"stray argument":      {"pack", "--name", "a:b", "--out", out, "stray"},
		"no name":             {"pack", "--out", out},
		"malformed file":      {"pack", "--name", "a:b", "--out", out, "--file", "/bin/true"},
		"malformed link":      {"pack", "--name", "a:b", "--out", out, "--link", ":x"},
		"no image":            product,
		"unknown image":       append(product, "--image", "other"),
		"binary is not built": append(product, "--image", "nfsplugin", "--arch", "arm64"),
		"malformed date":      append(product, "--image", "nfsplugin", "--date", "yesterday"),
		"architecture twice":  append(product, "--image", "nfsplugin", "--arch", "amd64"),
		"not built by Go":     append(product, "--image", "csi-provisioner"),
	} {
		t.Run(name, func(t *testing.T) {
			err := run(args, io.Discard)
			if err == nil || strings.TrimSpace(err.Error()) == "" {
				t.Errorf("run(%v) = %v, want an error", args, err)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("an image was left behind")
			}
		})
	}
}
