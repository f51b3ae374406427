package ociimage

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Annotations for the image's name in an OCI layout: containerd and Docker read the first,
// podman and skopeo the second.
const (
	annotationContainerdName = "io.containerd.image.name"
	annotationRefName        = "org.opencontainers.image.ref.name"
)

// WriteFile builds the image and writes it to path as a tar of an OCI image
// layout. It replaces an existing file after the new one is complete.
func WriteFile(path string, spec Spec) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // gone after the rename
	err = Write(tmp, spec)
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Chmod(tmp.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Write builds the image and writes it as a tar of an OCI image layout
// (https://specs.opencontainers.org/image-spec/image-layout/).
func Write(w io.Writer, spec Spec) error {
	img, err := Build(spec)
	if err != nil {
		return err
	}
	index := namedIndex(img, spec)
	a := archive{tw: tar.NewWriter(w)}
	a.add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	a.addRaw("index.json", index.RawManifest)
	a.addImage(img)
	if a.err != nil {
		return a.err
	}
	return a.tw.Close()
}

func namedIndex(img v1.Image, spec Spec) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range spec.Names {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img,
			Descriptor: v1.Descriptor{
				Platform:    &v1.Platform{OS: imageOS, Architecture: spec.Architecture},
				Annotations: map[string]string{annotationContainerdName: name, annotationRefName: name},
			},
		})
	}
	return index
}

// archive writes a layout's files and keeps the first error.
type archive struct {
	tw  *tar.Writer
	err error
}

func (a *archive) addImage(img v1.Image) {
	layers, err := img.Layers()
	if err != nil {
		a.err = err
		return
	}
	for _, layer := range layers {
		a.addBlob(layer.Digest, func() ([]byte, error) { return readAll(layer.Compressed) })
	}
	a.addBlob(img.ConfigName, img.RawConfigFile)
	a.addBlob(img.Digest, img.RawManifest)
}

func (a *archive) addBlob(digest func() (v1.Hash, error), content func() ([]byte, error)) {
	hash, err := digest()
	if err != nil && a.err == nil {
		a.err = err
	}
	a.addRaw("blobs/"+hash.Algorithm+"/"+hash.Hex, content)
}

func (a *archive) addRaw(name string, content func() ([]byte, error)) {
	if a.err != nil {
		return
	}
	data, err := content()
	if err != nil {
		a.err = fmt.Errorf("%s: %w", name, err)
		return
	}
	a.add(name, data)
}

func (a *archive) add(name string, data []byte) {
	if a.err != nil {
		return
	}
	header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: epoch(), Format: tar.FormatPAX}
	if a.err = a.tw.WriteHeader(header); a.err != nil {
		return
	}
	_, a.err = a.tw.Write(data)
}

func readAll(open func() (io.ReadCloser, error)) ([]byte, error) {
	r, err := open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
