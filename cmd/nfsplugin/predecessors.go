package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const annotationIgnored = "ignored"

// addPredecessors adds the flags of csi-driver-nfs that have another name here or no
// effect, so that its users' manifests work.
func addPredecessors(set *pflag.FlagSet, c *Config) error {
	set.StringVar(&c.DriverName, "drivername", c.DriverName, "The same as --driver-name.")
	set.StringVar(&c.NodeID, "nodeid", c.NodeID, "The same as --node-id.")
	hidden := []string{"drivername", "nodeid"}

	set.Int("vol-stats-cache-expire-in-minutes", 10, "Ignored.")
	set.Bool("remove-archived-volume-path", true, "Ignored: an archive never replaces an older one.")
	set.Bool("use-tar-command-in-snapshot", false, "Ignored.")
	set.Bool("enable-snapshot-compression", true, "Ignored.")
	ignored := append([]string{
		"vol-stats-cache-expire-in-minutes", "remove-archived-volume-path",
		"use-tar-command-in-snapshot", "enable-snapshot-compression",
	}, addKlog(set)...)
	for _, name := range ignored {
		if err := set.SetAnnotation(name, annotationIgnored, []string{}); err != nil {
			return err
		}
	}
	for _, name := range append(hidden, ignored...) {
		if err := set.MarkHidden(name); err != nil {
			return err
		}
	}
	return nil
}

// addKlog adds the flags of klog that this program does not have and returns their names.
// All of them direct or format its output, which goes to stderr here.
func addKlog(set *pflag.FlagSet) (added []string) {
	own := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(own)
	own.VisitAll(func(f *flag.Flag) {
		if set.Lookup(f.Name) != nil {
			return
		}
		added = append(added, f.Name)
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
			set.Bool(f.Name, false, "Ignored: logs go to stderr.")
			return
		}
		set.String(f.Name, "", "Ignored: logs go to stderr.")
	})
	return added
}

// longFlags writes flags with one dash as pflag expects them: package flag, which
// csi-driver-nfs uses, does not distinguish -drivername and --drivername.
func longFlags(set *pflag.FlagSet, args []string) []string {
	long := slices.Clone(args)
	for i, arg := range long {
		if arg == "--" {
			break
		}
		name, isFlag := strings.CutPrefix(arg, "-")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && len(name) > 1 && set.Lookup(name) != nil {
			long[i] = "-" + arg
		}
	}
	return long
}

// parseModeFlag parses the mode in a flag. csi-driver-nfs reads a number without a leading
// zero as decimal, and YAML writes an unquoted 0777 as 511. Such a number could mean
// either, so it is refused.
func parseModeFlag(text string) (volume.Mode, error) {
	if text != "" && !strings.HasPrefix(text, "0") {
		return 0, fmt.Errorf("%w: mode %q has no leading zero, must be octal such as 0777; "+
			"quote the flag where YAML or a template could rewrite it as a decimal number", volume.ErrInvalid, text)
	}
	return volume.ParseMode(text)
}
