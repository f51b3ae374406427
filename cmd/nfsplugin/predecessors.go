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

// addPredecessors adds the flags of csi-driver-nfs that have another name here or no
// effect, so that its users' manifests work. It returns the latter.
func addPredecessors(set *pflag.FlagSet, c *Config) (ignored *pflag.FlagSet) {
	renamed := pflag.NewFlagSet("renamed", pflag.ContinueOnError)
	renamed.StringVar(&c.DriverName, "drivername", c.DriverName, "The same as --driver-name.")
	renamed.StringVar(&c.NodeID, "nodeid", c.NodeID, "The same as --node-id.")

	ignored = pflag.NewFlagSet("ignored", pflag.ContinueOnError)
	ignored.Int("vol-stats-cache-expire-in-minutes", 10, "Ignored.")
	ignored.Bool("remove-archived-volume-path", true, "Ignored: an archive never replaces an older one.")
	ignored.Bool("use-tar-command-in-snapshot", false, "Ignored.")
	ignored.Bool("enable-snapshot-compression", true, "Ignored.")
	addKlog(set, ignored)
	for _, hidden := range []*pflag.FlagSet{renamed, ignored} {
		hidden.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
		set.AddFlagSet(hidden)
	}
	return ignored
}

// addKlog adds to ignored the flags of klog that this program does not have. All of them
// direct or format its output, which goes to stderr here.
func addKlog(set, ignored *pflag.FlagSet) {
	own := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(own)
	own.VisitAll(func(f *flag.Flag) {
		if set.Lookup(f.Name) != nil {
			return
		}
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
			ignored.Bool(f.Name, false, "Ignored: logs go to stderr.")
			return
		}
		ignored.String(f.Name, "", "Ignored: logs go to stderr.")
	})
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
