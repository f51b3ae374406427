package main

import (
	"github.com/spf13/pflag"
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
	for _, name := range []string{
		"vol-stats-cache-expire-in-minutes", "remove-archived-volume-path",
		"use-tar-command-in-snapshot", "enable-snapshot-compression",
	} {
		if err := set.SetAnnotation(name, annotationIgnored, []string{}); err != nil {
			return err
		}
		hidden = append(hidden, name)
	}
	for _, name := range hidden {
		if err := set.MarkHidden(name); err != nil {
			return err
		}
	}
	return nil
}
