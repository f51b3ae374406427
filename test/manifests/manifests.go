// Package manifests renders the kustomizations of deploy/ as kubectl does, for
// tests that need to look at them or to apply a part of them.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Render gives what `kubectl kustomize DIR` prints.
func Render(dir string) ([]byte, error) {
	// Files are read in place; nothing may be fetched, as the default options say.
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("kustomize %s: %w", dir, err)
	}
	return resources.AsYaml()
}

// Objects renders dir and decodes each object.
func Objects(dir string) ([]*unstructured.Unstructured, error) {
	rendered, err := Render(dir)
	if err != nil {
		return nil, err
	}
	objects, err := Decode(rendered)
	if err != nil {
		return nil, fmt.Errorf("what kustomize made of %s: %w", dir, err)
	}
	return objects, nil
}

// Decode reads a stream of objects.
func Decode(stream []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode an object: %w", err)
		}
		objects = append(objects, object)
	}
}
