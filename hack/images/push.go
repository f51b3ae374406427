package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/nfs-csi/nfs-csi/hack/internal/ociimage"
)

func runPush(ctx context.Context, args []string, stdout io.Writer) error {
	flags := pflag.NewFlagSet("images push", pflag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return ignoreHelp(err)
	}
	if flags.NArg() == 0 {
		return errors.New("push: name the archives to push")
	}
	for _, archive := range flags.Args() {
		pushed, err := ociimage.Push(ctx, archive)
		if err != nil {
			return err
		}
		for _, image := range pushed {
			fmt.Fprintln(stdout, image)
		}
	}
	return nil
}
