// Command images packs container images without a container engine. containerd
// (`ctr -n k8s.io images import`), podman and Docker can load its tar files.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

const usage = `Usage:
  images product --image IMAGE --binaries DIR --version VERSION --name REF --out FILE
      packs nfsplugin or csi-provisioner
  images pack --name REF --file SRC:DST... [--link TARGET:DST] [--dir DST] --out FILE
      packs any files

Every flag of a command: images COMMAND --help
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command given\n%s", usage)
	}
	switch command, rest := args[0], args[1:]; command {
	case "product":
		return runProduct(rest)
	case "pack":
		return runPack(rest)
	case "help", "-h", "--help":
		_, err := fmt.Print(usage)
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
