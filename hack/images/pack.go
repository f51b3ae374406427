package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nfs-csi/nfs-csi/hack/internal/ociimage"
)

type packOptions struct {
	files, links, dirs []string
	out                string
	names              []string
	spec               ociimage.Spec
}

func runPack(args []string) error {
	var o packOptions
	flags := pflag.NewFlagSet("images pack", pflag.ContinueOnError)
	flags.StringArrayVar(&o.names, "name", nil, "full image reference (may be repeated)")
	flags.StringArrayVar(&o.files, "file", nil, "SRC:DST, a file to put into the image, mode 0755 (may be repeated)")
	flags.StringArrayVar(&o.links, "link", nil, "TARGET:DST, a symbolic link DST -> TARGET (may be repeated)")
	flags.StringArrayVar(&o.dirs, "dir", nil, "DST, an empty directory, mode 0755 (may be repeated)")
	flags.StringArrayVar(&o.spec.Entrypoint, "entrypoint", nil, "one word of the entry point (may be repeated)")
	flags.StringArrayVar(&o.spec.Cmd, "cmd", nil, "one word of the default arguments (may be repeated)")
	flags.StringArrayVar(&o.spec.Env, "env", nil, "NAME=VALUE in the environment (may be repeated)")
	flags.StringVar(&o.spec.User, "user", "", "user or uid:gid the image runs as")
	flags.StringVar(&o.spec.Architecture, "arch", runtime.GOARCH, "architecture of the image")
	flags.StringToStringVar(&o.spec.Labels, "label", nil, "KEY=VALUE label")
	flags.StringVar(&o.out, "out", "", "tar file to write")
	if err := flags.Parse(args); err != nil {
		return ignoreHelp(err)
	}
	if o.out == "" || flags.NArg() > 0 {
		return errors.New("pack: --out is needed, and no other arguments")
	}
	if err := o.addEntries(); err != nil {
		return err
	}
	_, err := ociimage.WriteFile(o.out, ociimage.Image{Names: o.names, Platforms: []ociimage.Spec{o.spec}})
	return err
}

func (o *packOptions) addEntries() error {
	for _, pair := range o.files {
		src, dst, err := cutPair("file", pair)
		if err != nil {
			return err
		}
		o.spec.Entries = append(o.spec.Entries, ociimage.Entry{Path: dst, Source: src})
	}
	for _, pair := range o.links {
		target, dst, err := cutPair("link", pair)
		if err != nil {
			return err
		}
		o.spec.Entries = append(o.spec.Entries, ociimage.Entry{Path: dst, Link: target})
	}
	for _, dir := range o.dirs {
		o.spec.Entries = append(o.spec.Entries, ociimage.Entry{Path: dir, Dir: true})
	}
	return nil
}

func cutPair(flag, pair string) (before, after string, err error) {
	before, after, ok := strings.Cut(pair, ":")
	if !ok || before == "" || after == "" {
		return "", "", fmt.Errorf("--%s %q: want two parts with a colon between", flag, pair)
	}
	return before, after, nil
}
