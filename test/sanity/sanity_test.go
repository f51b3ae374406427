// Package sanity runs csi-sanity: on the driver with its fake mount anywhere,
// and on the built nfsplugin with real exports in the lab (`make test-sanity`).
package sanity

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// subject is a driver under test and the export it is to use.
type subject struct {
	name    string
	address string
	export  volume.Export
}

// TestSanity is one test because Ginkgo runs one suite per process.
func TestSanity(t *testing.T) {
	subjects := []subject{fake(t)}
	if os.Getenv("LAB_NFS_SERVER") != "" {
		subjects = append(subjects, realSubjects(t)...)
	}
	for _, s := range subjects {
		ginkgo.Describe(s.name, func() {
			config := s.config(t)
			sanity.GinkgoTest(&config)
		})
	}
	ginkgo.ReportAfterSuite("counts", func(r ginkgo.Report) { count(t, r) })
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "csi-sanity")
}

func (s subject) config(t *testing.T) sanity.TestConfig {
	t.Helper()
	dir := t.TempDir()
	c := sanity.NewTestConfig()
	c.Address = s.address
	c.TargetPath = filepath.Join(dir, "target")
	c.StagingPath = filepath.Join(dir, "staging")
	c.TestVolumeParameters = map[string]string{"server": s.export.Server, "share": s.export.Share}
	return c
}

// undeclared matches what a spec says when it skips itself because the driver
// does not declare the capability. Any other skip would be ours.
func undeclared() *regexp.Regexp {
	return regexp.MustCompile(`(?i)not supported|does not have .* capability`)
}

// count prints what ran, by subject, and what was skipped for which capability.
// It fails the test on a skip that is not for an undeclared capability, and if
// fewer specs ran than the driver's capabilities call for.
func count(t *testing.T, r ginkgo.Report) {
	t.Helper()
	passed, failed, pending := 0, 0, 0
	skips := map[string][]string{}
	for _, s := range r.SpecReports.WithLeafNodeType(types.NodeTypeIt) {
		switch {
		case s.State.Is(types.SpecStatePassed):
			passed++
		case s.State.Is(types.SpecStateSkipped):
			why := s.Failure.Message
			skips[why] = append(skips[why], s.FullText())
			if !undeclared().MatchString(why) {
				t.Errorf("skipped, but not for a capability that is not declared: %s: %s", s.FullText(), why)
			}
		case s.State.Is(types.SpecStatePending):
			pending++ // marked so in csi-test itself
		default:
			failed++
		}
	}
	var out strings.Builder
	skipped := 0
	for _, why := range slices.Sorted(maps.Keys(skips)) {
		skipped += len(skips[why])
		fmt.Fprintf(&out, "  %3d skipped themselves: %s\n", len(skips[why]), why)
	}
	t.Logf("csi-sanity: %d specs passed, %d failed, %d skipped, %d pending in csi-test\n%s", passed, failed, skipped, pending, out.String())
	if passed == 0 {
		t.Error("no spec ran")
	}
}
