package main

import (
	"bytes"
	"errors"
	"flag"
	"testing"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nfs-csi/nfs-csi/pkg/flagref"
	"github.com/nfs-csi/nfs-csi/pkg/flagref/flagreftest"
)

var update = flag.Bool("update", false, "write docs/flags-csi-provisioner.md")

func TestReferenceIsGenerated(t *testing.T) {
	set, _, err := (&flags{logging: logsapi.NewLoggingConfiguration()}).set()
	if err != nil {
		t.Fatal(err)
	}
	flagreftest.MustHold(t, "../../docs/flags-csi-provisioner.md", flagref.Page(set), *update)
}

func TestHelpNamesEveryFlag(t *testing.T) {
	set, _, err := (&flags{logging: logsapi.NewLoggingConfiguration()}).set()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := parseFlags([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Fatal(err)
	}
	flagreftest.MustName(t, out.String(), set)
}
