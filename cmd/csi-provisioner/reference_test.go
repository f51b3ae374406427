package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nfs-csi/nfs-csi/pkg/flagref"
)

var update = flag.Bool("update", false, "write docs/flags-csi-provisioner.md")

func TestReferenceIsGenerated(t *testing.T) {
	const path = "../../docs/flags-csi-provisioner.md"
	set, _, err := (&flags{logging: logsapi.NewLoggingConfiguration()}).set()
	if err != nil {
		t.Fatal(err)
	}
	want := flagref.Page(set)
	if *update {
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

// --help names every flag, those of predecessors included.
func TestHelpNamesEveryFlag(t *testing.T) {
	set, _, err := (&flags{logging: logsapi.NewLoggingConfiguration()}).set()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := parseFlags([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Fatal(err)
	}
	set.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(out.String(), " --"+f.Name) {
			t.Errorf("--help lacks --%s", f.Name)
		}
	})
}
