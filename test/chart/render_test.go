package chart_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nfs-csi/nfs-csi/test/chart"
)

const (
	dir        = "../../deploy/helm/nfs-csi"
	kubernetes = "v1.36.0"
)

var update = flag.Bool("update", false, "write the generated and golden files")

// A set is a release with values that has a golden file.
type set struct {
	name    string
	release chart.Release
	files   []string
}

func sets() []set {
	first := chart.Release{Name: "nfs-csi", Namespace: "nfs-csi", Kubernetes: kubernetes}
	shipped := func(name string) string { return filepath.Join(dir, "values", name+".yaml") }
	own := func(name string) string { return filepath.Join("testdata", "values", name+".yaml") }
	return []set{
		{"default", first, nil},
		{"snapshots", first, []string{shipped("snapshots")}},
		{"ha", first, []string{shipped("ha")}},
		{"csi-driver-nfs", first, []string{shipped("csi-driver-nfs")}},
		{"capacity", first, []string{shipped("capacity")}},
		{"ephemeral", first, []string{shipped("ephemeral")}},
		{"everything", first, []string{own("everything")}},
		{"openshift", first, []string{own("openshift")}},
		{"second", chart.Release{Name: "nas", Namespace: "storage", Kubernetes: "v1.33.0"}, []string{own("second")}},
	}
}

func (s set) render(t *testing.T) chart.Rendered {
	t.Helper()
	values, err := chart.Values(s.files...)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := chart.Render(dir, s.release, values)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

func (s set) objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := chart.Objects(chart.YAML(s.render(t).Manifests))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// compare checks a generated file, or writes it with -update.
func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; `make generate` writes it (-want +got):\n%s", file, diff)
	}
}

func TestGolden(t *testing.T) {
	for _, s := range sets() {
		t.Run(s.name, func(t *testing.T) {
			r := s.render(t)
			all := slices.Concat(r.Manifests, r.Tests)
			compare(t, filepath.Join("testdata", s.name+".yaml"), string(chart.YAML(all)))
			compare(t, filepath.Join("testdata", s.name+".notes"), r.Notes)
		})
	}
}
