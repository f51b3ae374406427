// Package conformance runs Kubernetes' own tests of storage drivers (External.Storage)
// against the driver. TestConformance of test/e2e runs its test binary in the lab.
package conformance

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	// Prints a namespace's events and pods when a spec fails.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	// Adds the flag -storage.testdriver, which names the driver file.
	_ "k8s.io/kubernetes/test/e2e/storage/external"
)

func TestMain(m *testing.M) {
	results := flag.String("results", "", "Unix socket for a line of JSON at the start and at the end of each spec")
	preprovisioned := flag.Bool("preprovisioned", false, "add the specs of volumes that an administrator created")
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	if *preprovisioned {
		describePreprovisioned()
	}
	framework.AfterReadingAllFlags(&framework.TestContext)
	// Only now: AfterReadingAllFlags has Ginkgo walk through the specs, which reports each.
	if *results != "" {
		if err := reportTo(*results); err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) { e2e.RunE2ETests(t) }

// report is what test/e2e reads.
type report struct {
	Name    string
	State   string // as Ginkgo names it; empty at the start
	Message string // why the spec failed or was skipped
	Output  string // of a failed one
}

// reportTo writes a report to the socket when a spec starts and when it has ended. Each of
// Ginkgo's processes has a connection of its own. Ginkgo also reports the specs that the
// focus excludes: they are skipped before they start.
func reportTo(path string) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(conn)
	write := func(r report) {
		framework.ExpectNoError(lines.Encode(r), "write the report of %s", r.Name)
	}
	selected := false
	ginkgo.ReportBeforeEach(func(spec ginkgo.SpecReport) {
		selected = !spec.State.Is(types.SpecStateSkipped | types.SpecStatePending)
		if selected {
			write(report{Name: spec.FullText()})
		}
	})
	ginkgo.ReportAfterEach(func(spec ginkgo.SpecReport) {
		if !selected {
			return
		}
		r := report{Name: spec.FullText(), State: spec.State.String(), Message: spec.FailureMessage()}
		if spec.Failed() {
			r.Output = spec.CapturedGinkgoWriterOutput
		}
		write(r)
	})
	return nil
}
