package main

import (
	"github.com/spf13/pflag"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/volumes"
)

func addTopologyFlags(set *pflag.FlagSet, c *volumes.Topology) {
	set.BoolVar(&c.Strict, "strict-topology", false,
		"Request volumes only in the topology segment of the node that the scheduler selected. Without it, that segment is preferred, and any other segment of the driver is accepted.")
	set.BoolVar(&c.Immediate, "immediate-topology", true,
		"For claims with immediate binding whose classes have no allowedTopologies, pass the topology segments of the cluster's nodes to the driver.")
}
