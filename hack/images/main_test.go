package main

import (
	"os"
	"path/filepath"
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

func TestRunPacksImages(t *testing.T) {
	dir := t.TempDir()
	app := write(t, dir, "app", "binary")
	write(t, dir, "nfsplugin", "binary")
	for _, args := range [][]string{
		{"pack", "--name", "example.com/app:v1", "--file", app + ":/bin/app", "--link", "app:/bin/sh", "--dir", "/tmp"},
		{"product", "--name", "example.com/app:v1", "--image", "nfsplugin", "--binaries", dir},
	} {
		out := filepath.Join(dir, "image-"+args[0]+".tar")
		if err := run(append(args, "--out", out)); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if info, err := os.Stat(out); err != nil || info.Size() == 0 {
			t.Errorf("%v: no image at %s: %v", args, out, err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "image.tar")
	for name, args := range map[string][]string{
		"no command":          {},
		"unknown command":     {"push"},
		"unknown flag":        {"pack", "--nonsense"},
		"no out":              {"pack", "--name", "a:b"},
		"stray argument":      {"pack", "--name", "a:b", "--out", out, "stray"},
		"no name":             {"pack", "--out", out},
		"malformed file":      {"pack", "--name", "a:b", "--out", out, "--file", "/bin/true"},
		"malformed link":      {"pack", "--name", "a:b", "--out", out, "--link", ":x"},
		"no image":            {"product", "--name", "a:b", "--out", out},
		"unknown image":       {"product", "--name", "a:b", "--out", out, "--image", "other"},
		"binary is not built": {"product", "--name", "a:b", "--out", out, "--image", "nfsplugin", "--binaries", dir},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(args)
			if err == nil || strings.TrimSpace(err.Error()) == "" {
				t.Errorf("run(%v) = %v, want an error", args, err)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("an image was left behind")
			}
		})
	}
}
