package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/csiclient"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// NodeConfig is the flags' --node-deployment and --node-deployment-*.
type NodeConfig struct {
	Enabled   bool
	Immediate bool
	BaseDelay time.Duration
	MaxDelay  time.Duration
	// Name is the node's, as the environment says.
	Name string
}

func addNodeFlags(set *pflag.FlagSet, c *NodeConfig) {
	set.BoolVar(&c.Enabled, "node-deployment", false,
		"Work for the node alone that NODE_NAME in the environment names, with the driver that runs on it; each node has a csi-provisioner then. The driver must have topology, with a segment for each node.")
	set.BoolVar(&c.Immediate, "node-deployment-immediate-binding", true,
		"With --node-deployment, take claims for this node that are bound at once. Without it, something else must choose their nodes.")
	set.DurationVar(&c.BaseDelay, "node-deployment-base-delay", 20*time.Second,
		"With --node-deployment, the longest time until this node takes a claim that is bound at once; doubles with each try that did not lead to it. The time is a random part of that, so that the nodes do not all try together.")
	set.DurationVar(&c.MaxDelay, "node-deployment-max-delay", time.Minute,
		"With --node-deployment, the most that --node-deployment-base-delay becomes.")
	c.Name = os.Getenv("NODE_NAME")
}

func (c NodeConfig) validate(leaderElection bool, features Features) error {
	switch {
	case !c.Enabled:
		return nil
	case c.Name == "":
		return errors.New("--node-deployment needs NODE_NAME in the environment")
	case leaderElection:
		return errors.New("--node-deployment and --leader-election exclude each other: every node has to work, not one of them")
	case !features.Topology:
		return errors.New("--node-deployment needs --feature-gates=Topology=true")
	case c.BaseDelay <= 0:
		return fmt.Errorf("--node-deployment-base-delay is %s, must be positive", c.BaseDelay)
	case c.MaxDelay < c.BaseDelay:
		return fmt.Errorf("--node-deployment-max-delay is %s, less than --node-deployment-base-delay", c.MaxDelay)
	}
	return nil
}

// node is zero without --node-deployment.
func (a *App) node(driver *csiclient.Client) plan.Node {
	c := a.config.Node
	if !c.Enabled {
		return plan.Node{}
	}
	return plan.Node{
		Name:      c.Name,
		Segment:   driver.Capabilities().NodeTopology.GetSegments(),
		Immediate: c.Immediate,
	}
}

// journalOf is the name of the ConfigMap that has the volumes in the making, of all
// nodes or of one. The driver's name has no dots in it, so that no two of driver
// and node make the same.
func (c NodeConfig) journalOf(driver string) string {
	name := journalName(driver)
	if c.Enabled {
		name += "." + c.Name
	}
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return journalName(driver) + "." + hex.EncodeToString(sum[:16])
}
