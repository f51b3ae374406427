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
	"strconv"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"

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
			config, sent := s.config(t), &modifications{}
			config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(sent.intercept))
			sanity.GinkgoTest(&config)
			t.Cleanup(func() { sent.mustBeSome(t, s.name) })
		})
	}
	ginkgo.ReportAfterSuite("counts", func(r ginkgo.Report) { count(t, len(subjects), r) })
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
	c.TestVolumeMutableParameters = map[string]string{volume.KeyOnDelete: string(volume.OnDeleteDelete), volume.KeyMountPermissions: "0750"}
	return c
}

// documented are the reasons for skips that the docs give: a capability that an
// NFS driver has no use for, and how many specs that concerns. Any other skip
// would be ours.
func documented(t *testing.T) map[string]int {
	t.Helper()
	doc, err := os.ReadFile("../../docs/development.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(.* not supported)` \\| (\\d+) \\|").FindAllSubmatch(doc, -1) {
		if reasons[string(row[1])], err = strconv.Atoi(string(row[2])); err != nil {
			t.Fatal(err)
		}
	}
	return reasons
}

// count prints what ran, by subject, and what was skipped for which capability.
// It fails the test on a skip that the docs do not name, and on one they name that
// there is not.
func count(t *testing.T, subjects int, r ginkgo.Report) {
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
	known := documented(t)
	for why, specs := range skips {
		if known[why]*subjects != len(specs) {
			t.Errorf("docs/development.md has %d specs skipped for %q of each driver, there are %q", known[why], why, specs)
		}
	}
	for why := range known {
		if skips[why] == nil {
			t.Errorf("docs/development.md has specs skipped for %q, there are none", why)
		}
	}
}
