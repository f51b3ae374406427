package ociimage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push copies the image of an archive that Write wrote to the registry of each of its names,
// with the credentials of Docker's configuration, and returns what it pushed as
// REPOSITORY@DIGEST.
func Push(ctx context.Context, archive string) ([]string, error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	if err := unpack(archive, dir); err != nil {
		return nil, fmt.Errorf("unpack %s: %w", archive, err)
	}
	names, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is not an OCI layout: %w", archive, err)
	}
	manifest, err := names.IndexManifest()
	if err != nil {
		return nil, err
	}
	var pushed []string
	for _, m := range manifest.Manifests {
		ref, err := name.ParseReference(m.Annotations[annotationRefName])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
		index, err := names.ImageIndex(m.Digest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
		if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return nil, fmt.Errorf("push %s: %w", ref, err)
		}
		pushed = append(pushed, ref.Context().Name()+"@"+m.Digest.String())
	}
	return pushed, nil
}

// unpack extracts a tar of regular files.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read from
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for tr := tar.NewReader(f); ; {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extract(root, header.Name, tr); err != nil {
			return err
		}
	}
}

func extract(root *os.Root, path string, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := root.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
