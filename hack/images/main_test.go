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
	recipe := write(t, dir, "Dockerfile", `FROM golang AS build
FROM scratch AS app
COPY --from=build /out/app /app
ENTRYPOINT ["/app"]
`)
	for _, args := range [][]string{
		{"pack", "--name", "example.com/app:v1", "--file", app + ":/bin/app", "--link", "app:/bin/sh", "--dir", "/tmp"},
		{"dockerfile", "--name", "example.com/app:v1", "--dockerfile", recipe, "--target", "app", "--context", dir},
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
	recipe := write(t, dir, "Dockerfile", `FROM golang AS build
FROM scratch AS elsewhere
COPY --from=build /etc/passwd /etc/passwd
FROM scratch AS missing
COPY --from=build /out/missing /missing
`)
	out := filepath.Join(dir, "image.tar")
	from := func(target string) []string {
		return []string{"dockerfile", "--name", "a:b", "--dockerfile", recipe, "--context", dir, "--out", out, "--target", target}
	}
	for name, args := range map[string][]string{
		"no command":                 {},
		"unknown command":            {"push"},
		"unknown flag":               {"pack", "--nonsense"},
		"no out":                     {"pack", "--name", "a:b"},
		"stray argument":             {"pack", "--name", "a:b", "--out", out, "stray"},
		"no name":                    {"pack", "--out", out},
		"malformed file":             {"pack", "--name", "a:b", "--out", out, "--file", "/bin/true"},
		"malformed link":             {"pack", "--name", "a:b", "--out", out, "--link", ":x"},
		"no target":                  {"dockerfile", "--out", out},
		"unknown target":             from("other"),
		"copy from outside of /out/": from("elsewhere"),
		"binary is not built":        from("missing"),
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
