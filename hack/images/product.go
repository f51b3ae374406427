package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nfs-csi/nfs-csi/hack/internal/ociimage"
	"github.com/nfs-csi/nfs-csi/hack/internal/sbom"
)

// product is one of the project's images. A test compares the stages of the Dockerfile
// with the products.
type product struct {
	// name of the image and of its only file.
	name, description, user string
}

const (
	sourceURL = "https://github.com/nfs-csi/nfs-csi"
	license   = "Apache-2.0"
	// unknown stands for a date in a tree without git.
	unknown = "unknown"
)

func products() []product {
	return []product{
		{name: "nfsplugin", description: "CSI driver for NFS", user: "0:0"},
		{name: "csi-provisioner", description: "Provisioner sidecar for CSI drivers", user: "65532:65532"},
	}
}

// build is what the labels say about the binaries. The date is that of the commit.
type build struct{ version, commit, date string }

func (b build) time() (time.Time, error) {
	if b.date == unknown {
		return time.Unix(0, 0), nil
	}
	t, err := time.Parse(time.RFC3339, b.date)
	if err != nil {
		return time.Time{}, fmt.Errorf("--date %q: want a time such as 2026-01-31T12:00:00Z, or %q", b.date, unknown)
	}
	return t, nil
}

// binary is where the product's program for an architecture is.
func (p product) binary(directory, arch string) string {
	return filepath.Join(directory, "linux-"+arch, p.name)
}

// spec of the image with the program.
func (p product) spec(program, arch string, b build) ociimage.Spec {
	const label = "org.opencontainers.image."
	return ociimage.Spec{
		Entries:      []ociimage.Entry{{Path: "/" + p.name, Source: program}},
		Entrypoint:   []string{"/" + p.name},
		User:         p.user,
		Architecture: arch,
		Labels: map[string]string{
			label + "title":       p.name,
			label + "description": p.description,
			label + "source":      sourceURL,
			label + "licenses":    license,
			label + "version":     b.version,
			label + "revision":    b.commit,
			label + "created":     b.date,
		},
	}
}

type productOptions struct {
	image, directory, out string
	names, archs          []string
	build                 build
}

func runProduct(args []string, stdout io.Writer) error {
	var o productOptions
	flags := pflag.NewFlagSet("images product", pflag.ContinueOnError)
	flags.StringVar(&o.image, "image", "", "image to pack")
	flags.StringVar(&o.directory, "binaries", "bin", "directory with the program of each architecture, at linux-ARCH/IMAGE")
	flags.StringVar(&o.build.version, "version", "dev", "version in the image's labels")
	flags.StringVar(&o.build.commit, "commit", unknown, "commit in the image's labels")
	flags.StringVar(&o.build.date, "date", unknown, "date in the image's labels and its SBOM")
	flags.StringArrayVar(&o.names, "name", nil, "full image reference (may be repeated)")
	flags.StringArrayVar(&o.archs, "arch", []string{runtime.GOARCH}, "architecture of the image (may be repeated)")
	flags.StringVar(&o.out, "out", "", "tar file to write; the SBOM is written beside it, to *.spdx.json")
	if err := flags.Parse(args); err != nil {
		return ignoreHelp(err)
	}
	if o.image == "" || o.out == "" || flags.NArg() > 0 {
		return errors.New("product: --image and --out are needed, and no other arguments")
	}
	for _, p := range products() {
		if p.name == o.image {
			return o.pack(p, stdout)
		}
	}
	return fmt.Errorf("product: no image is named %q", o.image)
}

// pack writes the image and its SBOM, and prints the size of each platform.
func (o productOptions) pack(p product, stdout io.Writer) error {
	created, err := o.build.time()
	if err != nil {
		return err
	}
	image := ociimage.Image{Names: o.names}
	for _, arch := range o.archs {
		image.Platforms = append(image.Platforms, p.spec(p.binary(o.directory, arch), arch, o.build))
	}
	summary, err := ociimage.WriteFile(o.out, image)
	if err != nil {
		return err
	}
	bill := sbom.Image{
		Name: p.name, Version: o.build.version, License: license, Source: sourceURL,
		Digest: summary.Digest, Created: created,
	}
	for i, platform := range summary.Platforms {
		bill.Programs = append(bill.Programs, sbom.Program{Platform: platform.Name, Path: p.binary(o.directory, o.archs[i])})
	}
	if err := sbom.WriteFile(strings.TrimSuffix(o.out, ".tar")+".spdx.json", bill); err != nil {
		// No image without its SBOM.
		return errors.Join(fmt.Errorf("SBOM of %s: %w", p.name, err), os.Remove(o.out))
	}
	for _, platform := range summary.Platforms {
		fmt.Fprintf(stdout, "%-16s %-12s %5.1f MB\n", p.name, platform.Name, float64(platform.Size)/1e6)
	}
	fmt.Fprintf(stdout, "%-16s %s\n", p.name, summary.Digest)
	return nil
}
