// Command images packs container images without a container engine, into tar
// files that `ctr -n k8s.io images import`, podman and Docker load.
package main

import (
	"fmt"
	"os"
)

const usage = `Usage:
  images dockerfile --dockerfile FILE --target STAGE --context DIR --name REF --out FILE
      packs what a FROM scratch stage of a Dockerfile says; the files it copies
      from /out of an earlier stage are taken from DIR
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
	case "dockerfile":
		return runDockerfile(rest)
	case "pack":
		return runPack(rest)
	case "help", "-h", "--help":
		_, err := fmt.Print(usage)
		return err
	default:
		return fmt.Errorf("unknown command %q\n%s", command, usage)
	}
}
