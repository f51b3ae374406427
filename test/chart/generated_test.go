package chart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"

	"github.com/nfs-csi/nfs-csi/test/chart"
)

func TestLint(t *testing.T) {
	for _, s := range sets() {
		values, err := chart.Values(s.files...)
		if err != nil {
			t.Fatal(err)
		}
		for _, message := range lint.RunAll(dir, values, s.release.Namespace).Messages {
			if !strings.Contains(message.Error(), "icon is recommended") {
				t.Errorf("%s: %v", s.name, message)
			}
		}
	}
}

// TestReadmeListsTheValues: README.md ends with what values.yaml says.
func TestReadmeListsTheValues(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values, err := chart.Documented(text)
	if err != nil {
		t.Fatal(err)
	}
	const start = "<!-- Below: generated from values.yaml by `make generate`. -->\n"
	readme := filepath.Join(dir, "README.md")
	page, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	above, _, ok := strings.Cut(string(page), start)
	if !ok {
		t.Fatalf("%s has no line %q", readme, start)
	}
	compare(t, readme, above+start+"\n"+chart.Table(values))
}

func TestUndocumentedValue(t *testing.T) {
	for text, want := range map[string]string{
		"# -- A.\na: 1\nb: 2\n":           "values.yaml:3: b has no comment",
		"a:\n  # plain\n  b: 2\n":         "values.yaml:3: a.b has no comment",
		"# -- A.\na: 1\nempty: {}\n":      "values.yaml:3: empty has no comment",
		"a:\n  # -- B.\n  b: 1\n  c: 2\n": "values.yaml:4: a.c has no comment",
	} {
		if _, err := chart.Documented([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// TestSnapshotDefinitions: the chart has the definitions of external-snapshotter's module,
// each with the annotation that keeps it.
func TestSnapshotDefinitions(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(output)), "config", "crd")
	files, err := filepath.Glob(filepath.Join(source, "*snapshot.storage.k8s.io_*.yaml"))
	if err != nil || len(files) != 6 {
		t.Fatalf("%s has %q, %v", source, files, err)
	}
	const annotations = "\n  annotations:\n"
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), annotations) != 1 {
			t.Fatalf("%s has no annotations, or more than one", file)
		}
		kept := strings.Replace(string(text), annotations, annotations+"    helm.sh/resource-policy: keep\n", 1)
		compare(t, filepath.Join(dir, "files", "snapshot-crds", filepath.Base(file)), kept)
	}
}
