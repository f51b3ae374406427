// Package flagreftest tests that the flags of a program are described.
package flagreftest

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// MustHold checks that the page at path is want, which update writes.
func MustHold(t *testing.T, path, want string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not up to date, run make generate; it should be\n%s", path, want)
	}
}

// MustName checks that the text of --help names every flag, those of predecessors
// included.
func MustName(t *testing.T, help string, set *pflag.FlagSet) {
	t.Helper()
	set.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(help, " --"+f.Name) {
			t.Errorf("--help lacks --%s", f.Name)
		}
	})
}
