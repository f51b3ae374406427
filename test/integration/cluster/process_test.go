package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// racing counts with two goroutines.
const racing = `package main

func main() {
	n, done := 0, make(chan bool)
	for range 2 {
		go func() { n++; done <- true }()
	}
	<-done
	<-done
	println("counted")
}
`

func TestARaceIsAnError(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "racing")
	if err := os.WriteFile(source, []byte(racing), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		flags []string
		races bool
	}{
		{"with the detector", []string{"-race"}, true},
		{"without", nil, false},
	} {
		args := append(append([]string{"build", "-o", program}, c.flags...), source)
		if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c.what, err, out)
		}
		process, err := StartProcess(dir, "racing", program)
		if err != nil {
			t.Fatal(err)
		}
		<-process.Exited()
		if err := process.Kill(); (err != nil) != c.races || c.races && !strings.Contains(err.Error(), "DATA RACE") {
			t.Errorf("%s: got %v, want a data race: %v", c.what, err, c.races)
		}
		if !strings.Contains(process.Tail(), "counted") {
			t.Errorf("%s: it did not run to its end: %s", c.what, process.Tail())
		}
	}
}
