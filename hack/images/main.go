// Command images packs container images without a container engine. containerd
// (`ctr -n k8s.io images import`), podman and Docker can load its tar files.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
)

const usage = `Usage:
  images product --image IMAGE --binaries DIR --arch ARCH... --version VERSION --name REF --out FILE
      packs nfsplugin or csi-provisioner for each architecture, and writes its SBOM
  images pack --name REF --file SRC:DST... [--link TARGET:DST] [--dir DST] --out FILE
      packs any files
  images push FILE...
      pushes packed images to the registries that their names name, and prints their digests

Every flag of a command: images COMMAND --help
`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("no command given\n%s", usage)
	}
	switch command, rest := args[0], args[1:]; command {
	case "product":
		return runProduct(rest, stdout)
	case "pack":
		return runPack(rest)
	case "push":
		return runPush(context.Background(), rest, stdout)
	case "help", "-h", "--help":
		_, err := fmt.Fprint(stdout, usage)
		return err
	default:
		return fmt.Errorf("unknown command %q\n%s", command, usage)
	}
}

func ignoreHelp(err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	return err
}
