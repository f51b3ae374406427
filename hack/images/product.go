package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/spf13/pflag"

	"github.com/nfs-csi/nfs-csi/hack/internal/ociimage"
)

// product is one of the project's images. A test compares the stages of the Dockerfile
// with the products.
type product struct {
	// name of the image and of its only file.
	name, description, user string
}

func products() []product {
	return []product{
		{name: "nfsplugin", description: "CSI driver for NFS", user: "0:0"},
		{name: "csi-provisioner", description: "Provisioner sidecar for CSI drivers", user: "65532:65532"},
	}
}

// build is what the labels say about the binaries. The date is that of the commit.
type build struct{ version, commit, date string }

// spec of the image with the program from the directory.
func (p product) spec(directory string, b build) ociimage.Spec {
	const label = "org.opencontainers.image."
	return ociimage.Spec{
		Entries:    []ociimage.Entry{{Path: "/" + p.name, Source: filepath.Join(directory, p.name)}},
		Entrypoint: []string{"/" + p.name},
		User:       p.user,
		Labels: map[string]string{
			label + "title":       p.name,
			label + "description": p.description,
			label + "source":      "https://github.com/nfs-csi/nfs-csi",
			label + "licenses":    "Apache-2.0",
			label + "version":     b.version,
			label + "revision":    b.commit,
			label + "created":     b.date,
		},
	}
}

func runProduct(args []string) error {
	var image, directory, arch, out string
	var b build
	var names []string
	flags := pflag.NewFlagSet("images product", pflag.ContinueOnError)
	flags.StringVar(&image, "image", "", "image to pack")
	flags.StringVar(&directory, "binaries", "bin", "directory with the program")
	flags.StringVar(&b.version, "version", "dev", "version in the image's labels")
	flags.StringVar(&b.commit, "commit", "unknown", "commit in the image's labels")
	flags.StringVar(&b.date, "date", "unknown", "date in the image's labels")
	flags.StringArrayVar(&names, "name", nil, "full image reference (may be repeated)")
	flags.StringVar(&arch, "arch", runtime.GOARCH, "architecture of the image")
	flags.StringVar(&out, "out", "", "tar file to write")
	if err := flags.Parse(args); err != nil {
		return ignoreHelp(err)
	}
	if image == "" || out == "" || flags.NArg() > 0 {
		return errors.New("product: --image and --out are needed, and no other arguments")
	}
	for _, p := range products() {
		if p.name == image {
			spec := p.spec(directory, b)
			spec.Names, spec.Architecture = names, arch
			return ociimage.WriteFile(out, spec)
		}
	}
	return fmt.Errorf("product: no image is named %q", image)
}
