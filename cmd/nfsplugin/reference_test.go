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

var update = flag.Bool("update", false, "write docs/flags-nfsplugin.md")

func TestReferenceIsGenerated(t *testing.T) {
	set, _ := (&flags{logging: logsapi.NewLoggingConfiguration()}).set()
	flagreftest.MustHold(t, "../../docs/flags-nfsplugin.md", flagref.Page(set), *update)
}

func TestHelpNamesEveryFlag(t *testing.T) {
	set, _ := (&flags{logging: logsapi.NewLoggingConfiguration()}).set()
	var out bytes.Buffer
	if _, err := parseFlags([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Fatal(err)
	}
	flagreftest.MustName(t, out.String(), set)
}
