// Package chart renders deploy/helm/nfs-csi as helm does, for tests and for what is
// generated from it.
package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	sigsyaml "sigs.k8s.io/yaml"
)

// A Release is what `helm install NAME CHART --namespace NAMESPACE` names.
type Release struct {
	Name, Namespace string
	// Kubernetes is the version of the cluster; empty is that of the lab.
	Kubernetes string
}

const labKubernetes = "v1.36.0"

// Rendered is what helm makes of a chart and values.
type Rendered struct {
	// Manifests are in the order in which helm installs them, Tests in which it runs them.
	Manifests, Tests []string
	Notes            string
}

// Render gives what `helm template` prints.
func Render(dir string, release Release, values map[string]any) (Rendered, error) {
	loaded, err := loader.LoadDir(dir)
	if err != nil {
		return Rendered{}, fmt.Errorf("load chart %s: %w", dir, err)
	}
	if release.Kubernetes == "" {
		release.Kubernetes = labKubernetes
	}
	version, err := common.ParseKubeVersion(release.Kubernetes)
	if err != nil {
		return Rendered{}, fmt.Errorf("version of Kubernetes %q: %w", release.Kubernetes, err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	options := common.ReleaseOptions{Name: release.Name, Namespace: release.Namespace, Revision: 1, IsInstall: true}
	top, err := util.ToRenderValues(loaded, values, options, capabilities)
	if err != nil {
		return Rendered{}, err
	}
	files, err := engine.Render(loaded, top)
	if err != nil {
		return Rendered{}, err
	}
	var r Rendered
	for path, content := range files {
		if strings.HasSuffix(path, "NOTES.txt") {
			r.Notes = content
			delete(files, path)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, capabilities.APIVersions, releaseutil.InstallOrder)
	if err != nil {
		return Rendered{}, fmt.Errorf("what %s renders: %w", dir, err)
	}
	for _, m := range manifests {
		r.Manifests = append(r.Manifests, strings.TrimSpace(m.Content))
	}
	for _, h := range hooks {
		r.Tests = append(r.Tests, strings.TrimSpace(h.Manifest))
	}
	return r, nil
}

// Manifests renders what `kubectl apply` needs, with the namespace. The values are those of
// files, and then those in text.
func Manifests(dir string, release Release, text string, files ...string) ([]byte, error) {
	values, err := Values(files...)
	if err != nil {
		return nil, err
	}
	for _, more := range []string{text, "namespace: {create: true}"} {
		parsed, err := parse(more)
		if err != nil {
			return nil, err
		}
		values = loader.MergeMaps(values, parsed)
	}
	rendered, err := Render(dir, release, values)
	return YAML(rendered.Manifests), err
}

// YAML joins manifests to one stream.
func YAML(manifests []string) []byte {
	return []byte(strings.Join(manifests, "\n---\n") + "\n")
}

// Values reads values from files, of which later ones win, as `helm --values`.
func Values(files ...string) (map[string]any, error) {
	merged := map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return nil, err
		}
		values, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		merged = loader.MergeMaps(merged, values)
	}
	return merged, nil
}

func parse(text string) (map[string]any, error) {
	var values map[string]any
	err := sigsyaml.UnmarshalStrict([]byte(text), &values)
	return values, err
}
