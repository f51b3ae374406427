package main

import "github.com/spf13/pflag"

func addTopologyFlags(set *pflag.FlagSet, c *Config) {
	set.BoolVar(&c.StrictTopology, "strict-topology", false,
		"Ask for volumes in the topology segment of the node that the scheduler chose and no other. Without it, that segment is preferred and every other that the driver runs in will do.")
	set.BoolVar(&c.ImmediateTopology, "immediate-topology", true,
		"For claims that are bound at once, and of classes without allowedTopologies, tell the driver in which topology segments the cluster has nodes.")
}
