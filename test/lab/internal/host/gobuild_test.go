package host

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program is a goBuild of a program with the body.
func program(t *testing.T, body string) goBuild {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module m\n", "main.go": "package main\n\nfunc main() {" + body + "}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return goBuild{name: "m v1", dir: dir, out: filepath.Join(dir, "m"), log: filepath.Join(dir, "build.log"), every: time.Minute}
}

func TestBuildKeepsItsLog(t *testing.T) {
	var said bytes.Buffer
	b := program(t, "")
	if err := b.run(t.Context(), &said); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.out); err != nil {
		t.Error(err)
	}
	if log, err := os.ReadFile(b.log); err != nil || string(log) != "m\n" {
		t.Errorf("the log has %q, %v, want the one package", log, err)
	}
	if !strings.HasPrefix(said.String(), "lab: m v1: built in ") {
		t.Errorf("it said %q", said.String())
	}
}

func TestBuildFailsWithTheEndOfItsLog(t *testing.T) {
	b := program(t, "undefined()")
	err := b.run(t.Context(), &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") || !strings.Contains(err.Error(), b.log) {
		t.Errorf("got %v, want the compiler's error and %s", err, b.log)
	}
}

func TestBuildReportsProgress(t *testing.T) {
	var log bytes.Buffer
	p := &buildProgress{name: "m", log: &log, began: time.Now()}
	const downloads = "go: downloading a v1\ngo: downloading b v1\n"
	if _, err := p.Write([]byte(downloads)); err != nil {
		t.Fatal(err)
	}
	if got := p.String(); got != "m: 2 modules downloaded, 0s" {
		t.Errorf("got %q", got)
	}
	p.total.Store(7)
	if _, err := p.Write([]byte("a\nb\nc\n")); err != nil {
		t.Fatal(err)
	}
	if got := p.String(); got != "m: 3 of 7 packages compiled, 0s" {
		t.Errorf("got %q", got)
	}
	if log.String() != downloads+"a\nb\nc\n" {
		t.Errorf("the log has %q", log.String())
	}

	told := make(chan string)
	stop := p.tell(writerTo(told), time.Millisecond)
	for range 2 {
		if line := <-told; !strings.HasPrefix(line, "lab: m: 3 of 7 packages") {
			t.Errorf("it said %q", line)
		}
	}
	go func() {
		for range told { // what is said before it stops
		}
	}()
	stop()
	close(told)
}

type writerTo chan<- string

func (w writerTo) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}
