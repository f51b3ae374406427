package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/csiclient"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// maxJournalName leaves room for a dot and a digit.
const maxJournalName = validation.DNS1123SubdomainMaxLength - 2

// NodeConfig has the values of --node-deployment and --node-deployment-*.
type NodeConfig struct {
	Enabled   bool
	Immediate bool
	BaseDelay time.Duration
	MaxDelay  time.Duration
	// Name of the node, from the environment.
	Name string
}

func addNodeFlags(set *pflag.FlagSet, c *NodeConfig) {
	set.BoolVar(&c.Enabled, "node-deployment", false,
		"Work only for the node in the environment variable NODE_NAME, with the driver on that node; every node runs a csi-provisioner then. The driver must have topology, with a segment for each node.")
	set.BoolVar(&c.Immediate, "node-deployment-immediate-binding", true,
		"With --node-deployment, claim PersistentVolumeClaims with immediate binding for this node. Without it, something else must select their nodes.")
	set.DurationVar(&c.BaseDelay, "node-deployment-base-delay", 20*time.Second,
		"With --node-deployment, the maximum delay before this node tries to get a PersistentVolumeClaim with immediate binding; doubles with each failed attempt. The delay is random, so that nodes do not all try at the same time.")
	set.DurationVar(&c.MaxDelay, "node-deployment-max-delay", time.Minute,
		"With --node-deployment, the upper bound of the delay that starts with --node-deployment-base-delay.")
	c.Name = os.Getenv("NODE_NAME")
}

func (c NodeConfig) validate(leaderElection, topology bool) error {
	switch {
	case !c.Enabled:
		return nil
	case c.Name == "":
		return errors.New("--node-deployment needs NODE_NAME in the environment")
	case leaderElection:
		return errors.New("--node-deployment and --leader-election exclude each other: every node has to work, not just one")
	case !topology:
		return errors.New("--node-deployment needs --feature-gates=Topology=true")
	}
	return nil
}

// node is zero without --node-deployment.
func (c NodeConfig) node(driver *csiclient.Client) plan.Node {
	if !c.Enabled {
		return plan.Node{}
	}
	return plan.Node{
		Name:      c.Name,
		Segment:   driver.Capabilities().NodeTopology.GetSegments(),
		Immediate: c.Immediate,
	}
}

// journalOf is the name of the journal's ConfigMaps before their numbers, for all nodes or
// for one. A lease's name has no dots, so the names of two pairs of driver and node always
// differ.
func (c NodeConfig) journalOf(driver string) string {
	return c.journalName("csi-provisioner."+strings.ToLower(leaseName(driver)), maxJournalName)
}

// formerJournalOf is the name of the ConfigMap that earlier versions used.
func (c NodeConfig) formerJournalOf(driver string) string {
	return c.journalName("csi-provisioner-"+strings.ToLower(leaseName(driver)), validation.DNS1123SubdomainMaxLength)
}

func (c NodeConfig) journalName(ofDriver string, limit int) string {
	name := ofDriver
	if c.Enabled {
		name += "." + c.Name
	}
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return ofDriver + "." + hex.EncodeToString(sum[:16])
}
