package ociimage

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// WriteFile builds the image and writes it to path as a tar of an OCI image
// layout. It replaces an existing file after the new one is complete.
func WriteFile(path string, image Image) (Summary, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return Summary{}, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return Summary{}, err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // gone after the rename
	summary, err := Write(tmp, image)
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return Summary{}, fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Chmod(tmp.Name(), 0o644); err != nil {
		return Summary{}, err
	}
	return summary, os.Rename(tmp.Name(), path)
}

// Write builds the image and writes it as a tar of an OCI image layout
// (https://specs.opencontainers.org/image-spec/image-layout/), in which each name refers to
// the same image index.
func Write(w io.Writer, image Image) (Summary, error) {
	if err := image.validate(); err != nil {
		return Summary{}, err
	}
	images, err := image.platforms()
	if err != nil {
		return Summary{}, err
	}
	index := image.index(images)
	a := archive{tw: tar.NewWriter(w), written: map[v1.Hash]bool{}}
	a.add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	a.addRaw("index.json", image.named(index).RawManifest)
	for _, img := range images {
		a.addImage(img)
	}
	a.addBlob(index.Digest, index.RawManifest)
	if a.err != nil {
		return Summary{}, a.err
	}
	if err := a.tw.Close(); err != nil {
		return Summary{}, err
	}
	return image.summary(index, images)
}

// archive writes a layout's files and keeps the first error.
type archive struct {
	tw *tar.Writer
	// written has the blobs that are in the archive: platforms can share a layer.
	written map[v1.Hash]bool
	err     error
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
	if a.written[hash] {
		return
	}
	a.written[hash] = true
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
