package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/test/e2e/sshnode"
)

const (
	// The StorageClass and the VolumeAttributesClass that the driver file names.
	conformanceClass = "conformance"
	conformanceDir   = "testdata/conformance"
	sshPort          = ":22" // upstream knows no other
)

// TestConformance runs Kubernetes' own tests of storage drivers, with the programs in the
// directory $CONFORMANCE, and has a subtest for each spec: ten of them, or those that
// $CONFORMANCE_FOCUS, a regular expression, selects.
func TestConformance(t *testing.T) {
	programs := os.Getenv("CONFORMANCE")
	if programs == "" {
		t.Skip("needs the lab's cluster and the upstream suite: make test-e2e")
	}
	e := newEnv(t)
	defer e.createConformanceClasses()()
	skips := documentedSkips(t)
	inline := specRun{programs: programs, driverFile: "inline.yaml", skips: skips}
	driver := specRun{programs: programs, driverFile: "driver.yaml", skips: skips, parallel: true}
	focus, all := os.LookupEnv("CONFORMANCE_FOCUS")
	if !all {
		inline.focus, driver.focus = quickInlineSpecs, quickSpecs()
		if specs := e.conformance(inline) + e.conformance(driver); specs != quickCount {
			t.Errorf("%d specs match instead of %d: upstream has renamed some", specs, quickCount)
		}
		return
	}
	// The driver as all tests have it allows inline volumes, which are all one directory.
	inline.focus, inline.skip = focus, `\[Testpattern: [^C]`
	specs := e.conformance(inline)
	if err := use(t.Context(), conformanceDir, driverName); err != nil {
		t.Fatal(err)
	}
	driver.focus, driver.preprovisioned = focus, true
	driver.skip = `CSI Ephemeral-volume|any volume data source|nfs\.csi\.internal\] \[Testpattern: Pre-provisioned PV`
	driver.labels = "!Disruptive"
	specs += e.conformance(driver)
	driver.labels, driver.parallel = "Disruptive", false
	specs += e.conformance(driver)
	if specs == 0 {
		t.Errorf("no spec matches %q", focus)
	}
}

// What is part of `make test`: ten specs, among the quickest of their kinds.
const (
	quickCount       = 10
	quickInlineSpecs = `CSI Ephemeral-volume \(default fs\)\] ephemeral should create read`
)

func quickSpecs() string {
	const dynamic = `\[Testpattern: Dynamic PV \(default fs\)\] `
	return strings.Join([]string{
		dynamic + `volumes should store data`,
		dynamic + `provisioning should provision storage with mount options`,
		dynamic + `provisioning should provision storage with pvc data source$`,
		dynamic + `provisioning should mount multiple PV pointing to the same storage`,
		dynamic + `volume-modify .*should create a volume with VAC`,
		`Generic Ephemeral-volume \(default fs\) \(late-binding\)\] ephemeral should create read/write`,
		`Dynamic PV \(block volmode\)\] volumeMode should fail in binding`,
		`Dynamic Snapshot \(delete policy\)\] snapshottable .*\(persistent\)`,
	}, "|")
}

// conformance returns how many specs it has run. They leave nothing on the export.
func (e *env) conformance(r specRun) (specs int) {
	e.t.Helper()
	if err := os.MkdirAll(filepath.Join(inlineShare(), "conformance"), 0o755); err != nil {
		e.t.Fatal(err)
	}
	key := filepath.Join(e.t.TempDir(), "key")
	node, err := sshnode.Start(e.t.Context(), e.server+sshPort, key, "kubelet")
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() {
		if err := node.Close(); err != nil {
			e.t.Error(err)
		}
	}()
	specs, err = r.run(e.t, key)
	if err != nil {
		e.t.Error(err)
	}
	e.expectOnExport()
	return specs
}

// createConformanceClasses creates what the driver file names.
func (e *env) createConformanceClasses() (remove func()) {
	e.t.Helper()
	meta := metav1.ObjectMeta{Name: conformanceClass}
	storageClasses, attributesClasses := e.client.StorageV1().StorageClasses(), e.client.StorageV1().VolumeAttributesClasses()
	_, err := storageClasses.Create(e.t.Context(), &storagev1.StorageClass{
		ObjectMeta:  meta,
		Provisioner: driverName,
		Parameters:  map[string]string{"server": e.server, "share": e.export},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	_, err = attributesClasses.Create(e.t.Context(), &storagev1.VolumeAttributesClass{
		ObjectMeta: meta,
		DriverName: driverName,
		Parameters: map[string]string{"mountPermissions": "0777"},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		err := errors.Join(
			storageClasses.Delete(ctx, conformanceClass, metav1.DeleteOptions{}),
			attributesClasses.Delete(ctx, conformanceClass, metav1.DeleteOptions{}),
		)
		if err != nil {
			e.t.Error(err)
		}
	}
}
