package ociimage

import (
	"fmt"

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

// Image is one image for one or more platforms.
type Image struct {
	// Names are full references such as ghcr.io/nfs-csi/nfsplugin:v0.1.0. They are used
	// unchanged: nodes look up the image by them.
	Names []string
	// Platforms has the image of each architecture.
	Platforms []Spec
}

// Summary says what was packed.
type Summary struct {
	// Digest of the image index, by which a registry and a node know the image.
	Digest string
	// Platforms are in the order of the image's.
	Platforms []Platform
}

// Platform is the part of a Summary for one architecture.
type Platform struct {
	Name string
	// Size is what a node downloads, in bytes.
	Size int64
}

func (i Image) validate() error {
	if len(i.Names) == 0 {
		return fmt.Errorf("%w: no name", ErrSpec)
	}
	if len(i.Platforms) == 0 {
		return fmt.Errorf("%w: no platform", ErrSpec)
	}
	seen := map[string]bool{}
	for _, spec := range i.Platforms {
		if err := spec.validate(); err != nil {
			return err
		}
		if seen[spec.Architecture] {
			return fmt.Errorf("%w: architecture %s is given twice", ErrSpec, spec.Architecture)
		}
		seen[spec.Architecture] = true
	}
	return nil
}

// platforms builds the image of each platform.
func (i Image) platforms() ([]v1.Image, error) {
	var images []v1.Image
	for _, spec := range i.Platforms {
		img, err := build(spec)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spec.platform(), err)
		}
		images = append(images, img)
	}
	return images, nil
}

// index lists the images of the platforms.
func (i Image) index(images []v1.Image) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for n, img := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: imageOS, Architecture: i.Platforms[n].Architecture},
		}})
	}
	return index
}

// named is the index.json of a layout: the image index under each of its names.
func (i Image) named(index v1.ImageIndex) v1.ImageIndex {
	named := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range i.Names {
		named = mutate.AppendManifests(named, mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
			Annotations: map[string]string{annotationContainerdName: name, annotationRefName: name},
		}})
	}
	return named
}

func (i Image) summary(index v1.ImageIndex, images []v1.Image) (Summary, error) {
	digest, err := index.Digest()
	if err != nil {
		return Summary{}, err
	}
	summary := Summary{Digest: digest.String()}
	for n, img := range images {
		size, err := downloadSize(img)
		if err != nil {
			return Summary{}, err
		}
		summary.Platforms = append(summary.Platforms, Platform{Name: i.Platforms[n].platform(), Size: size})
	}
	return summary, nil
}

func downloadSize(img v1.Image) (int64, error) {
	size, err := img.Size()
	if err != nil {
		return 0, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return 0, err
	}
	size += manifest.Config.Size
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	return size, nil
}
