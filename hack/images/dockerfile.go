package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nfs-csi/nfs-csi/hack/internal/dockerfile"
	"github.com/nfs-csi/nfs-csi/hack/internal/ociimage"
)

// buildOutput is where the Dockerfile's build stage leaves the binaries.
const buildOutput = "/out/"

type dockerfileOptions struct {
	file, target, context, out, arch string
	names                            []string
	buildArgs                        map[string]string
}

func runDockerfile(args []string) error {
	var o dockerfileOptions
	flags := pflag.NewFlagSet("images dockerfile", pflag.ContinueOnError)
	flags.StringVar(&o.file, "dockerfile", "Dockerfile", "Dockerfile to read")
	flags.StringVar(&o.target, "target", "", "stage to pack")
	flags.StringVar(&o.context, "context", "bin", "directory that stands in for the build stage's "+buildOutput)
	flags.StringArrayVar(&o.names, "name", nil, "full image reference (may be repeated)")
	flags.StringToStringVar(&o.buildArgs, "build-arg", nil, "NAME=VALUE for an ARG of the stage")
	flags.StringVar(&o.arch, "arch", runtime.GOARCH, "architecture of the image")
	flags.StringVar(&o.out, "out", "", "tar file to write")
	if err := flags.Parse(args); err != nil {
		return ignoreHelp(err)
	}
	if o.target == "" || o.out == "" || flags.NArg() > 0 {
		return errors.New("dockerfile: --target and --out are needed, and no other arguments")
	}
	spec, err := o.spec()
	if err != nil {
		return fmt.Errorf("%s: %w", o.file, err)
	}
	return ociimage.WriteFile(o.out, spec)
}

func (o dockerfileOptions) spec() (ociimage.Spec, error) {
	f, err := os.Open(o.file)
	if err != nil {
		return ociimage.Spec{}, err
	}
	defer f.Close() //nolint:errcheck // only read from
	parsed, err := dockerfile.Parse(f)
	if err != nil {
		return ociimage.Spec{}, err
	}
	target, err := parsed.Target(o.target, o.buildArgs)
	if err != nil {
		return ociimage.Spec{}, err
	}
	spec := ociimage.Spec{
		Names:        o.names,
		Entrypoint:   target.Entrypoint,
		Cmd:          target.Cmd,
		User:         target.User,
		WorkingDir:   target.WorkingDir,
		Labels:       target.Labels,
		Architecture: o.arch,
	}
	for _, c := range target.Copies {
		name, ok := strings.CutPrefix(c.From, buildOutput)
		if !ok || strings.Contains(name, "/") {
			return ociimage.Spec{}, fmt.Errorf("COPY of %s: only files right below %s can be packed", c.From, buildOutput)
		}
		spec.Entries = append(spec.Entries, ociimage.Entry{Path: c.To, Source: filepath.Join(o.context, name)})
	}
	return spec, nil
}

func ignoreHelp(err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	return err
}
