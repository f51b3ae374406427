package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// TestConformance runs Kubernetes' own tests of storage drivers, in the program that
// $CONFORMANCE names, and has a subtest for each spec: ten of them, or those that
// $CONFORMANCE_FOCUS, a regular expression, selects.
func TestConformance(t *testing.T) {
	program := os.Getenv("CONFORMANCE")
	if program == "" {
		t.Skip("needs the lab's cluster and the upstream suite: make test-e2e")
	}
	e := newEnv(t)
	defer e.createConformanceClasses()()
	focus, all := os.LookupEnv("CONFORMANCE_FOCUS")
	if !all {
		specs := e.conformance(conformanceRun{program: program, driverFile: "inline.yaml", focus: quickInlineSpecs})
		specs += e.conformance(conformanceRun{program: program, driverFile: "driver.yaml", focus: quickSpecs()})
		if specs != quickCount {
			t.Errorf("%d specs match instead of %d: upstream has renamed some", specs, quickCount)
		}
		return
	}
	// The driver as all tests have it allows inline volumes.
	specs := e.conformance(conformanceRun{program: program, driverFile: "inline.yaml", focus: focus, skip: `\[Testpattern: [^C]`})
	if err := use(t.Context(), conformanceDir, driverName); err != nil {
		t.Fatal(err)
	}
	specs += e.conformance(conformanceRun{
		program: program, driverFile: "driver.yaml", focus: focus, preprovisioned: true,
		skip: `CSI Ephemeral-volume|any volume data source|nfs\.csi\.internal\] \[Testpattern: Pre-provisioned PV`,
	})
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

type conformanceRun struct {
	program, driverFile string
	focus, skip         string // regular expressions
	preprovisioned      bool
}

// conformance returns how many specs it has run. They leave nothing on the export.
func (e *env) conformance(r conformanceRun) (specs int) {
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

// run makes a subtest of each spec, as it begins.
func (r conformanceRun) run(t *testing.T, sshKey string) (specs int, err error) {
	results, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer results.Close()
	var output bytes.Buffer
	command := exec.CommandContext(t.Context(), r.program, r.args()...)
	command.Env = append(os.Environ(), "KUBE_SSH_KEY_PATH="+sshKey, "KUBE_SSH_USER=root")
	command.Stdout, command.Stderr = &output, &output
	command.ExtraFiles = []*os.File{write}
	err = command.Start()
	write.Close()
	if err != nil {
		return 0, err
	}
	specs, err = reportSpecs(t, results, documentedSkips(t))
	err = errors.Join(err, command.Wait())
	if err != nil && !t.Failed() {
		t.Logf("output of %s: %s", r.program, output.String())
	}
	return specs, err
}

func (r conformanceRun) args() []string {
	args := []string{
		"-results=/proc/self/fd/3", "-kubeconfig=" + os.Getenv("KUBECONFIG"), "-provider=skeleton",
		"-storage.testdriver=../conformance/" + r.driverFile,
		"-ginkgo.focus=External.Storage.*(?:" + r.focus + ")", "-ginkgo.timeout=24h", "-test.timeout=0",
	}
	if r.skip != "" {
		args = append(args, "-ginkgo.skip="+r.skip)
	}
	if r.preprovisioned {
		args = append(args, "-preprovisioned")
	}
	return args
}

// specReport is what the program writes at the start and at the end of a spec.
type specReport struct {
	Name    string
	State   string // empty at the start
	Message string // why the spec failed or was skipped
	Output  string // what a failed spec has written
}

// documentedSkips are the reasons for skips that docs/development.md gives, where "..." is
// any text. Any other skip is a failure: the setup lacks what a spec needs.
func documentedSkips(t *testing.T) *regexp.Regexp {
	t.Helper()
	doc, err := os.ReadFile("../../docs/development.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Kubernetes' tests of storage drivers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var reasons []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(.+?)` \\|.*\\|$").FindAllStringSubmatch(section, -1) {
		reasons = append(reasons, strings.ReplaceAll(regexp.QuoteMeta(row[1]), `\.\.\.`, ".*"))
	}
	if len(reasons) == 0 {
		t.Fatal("docs/development.md has no reasons for skips")
	}
	return regexp.MustCompile(strings.Join(reasons, "|"))
}

// reportSpecs runs a subtest from each spec's start to its end.
func reportSpecs(t *testing.T, reports io.Reader, skips *regexp.Regexp) (specs int, err error) {
	next := json.NewDecoder(reports)
	for {
		var start, end specReport
		switch err := next.Decode(&start); {
		case errors.Is(err, io.EOF):
			return specs, nil
		case err != nil:
			return specs, fmt.Errorf("results: %w", err)
		}
		specs++
		t.Run(start.Name, func(t *testing.T) {
			if err := next.Decode(&end); err != nil {
				t.Fatalf("the suite ended during the spec: %v", err)
			}
			switch {
			case end.Name != start.Name:
				t.Fatalf("the suite continued with %s", end.Name)
			case end.State == "passed":
				t.Log("passed") // the result itself is printed at the end of all
			case end.State == "skipped" && skips.MatchString(end.Message):
				t.Skip(strings.TrimSpace(end.Message))
			default:
				t.Errorf("%s: %s\n%s", end.State, end.Message, end.Output)
			}
		})
	}
}
