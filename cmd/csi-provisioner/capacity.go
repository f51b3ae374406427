package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/nfs-csi/nfs-csi/pkg/capacity"
)

// CapacityConfig has the values of the flags of the same names.
type CapacityConfig struct {
	Enabled      bool
	Threads      int
	PollInterval time.Duration
	OwnerLevel   int
	Immediate    bool
	QPS          float32
	Burst        int
	// Namespace and Pod of this process, from the environment.
	Namespace, Pod string
}

func addCapacityFlags(set *pflag.FlagSet, c *CapacityConfig) {
	set.BoolVar(&c.Enabled, "enable-capacity", false,
		"Publish the free capacity of the driver as CSIStorageCapacity objects, in the namespace in the environment variable NAMESPACE. The driver should support GetCapacity.")
	set.IntVar(&c.Threads, "capacity-threads", 1,
		"How many GetCapacity calls run at the same time.")
	set.DurationVar(&c.PollInterval, "capacity-poll-interval", defaultCapacityPollInterval,
		"Interval between GetCapacity calls for the same class and segment.")
	set.IntVar(&c.OwnerLevel, "capacity-ownerref-level", 1,
		"Owner of the CSIStorageCapacity objects: 0 for the pod in the environment variable POD_NAME, 1 for its controller (a StatefulSet or DaemonSet), 2 for the controller of that (a Deployment), -1 for none.")
	set.BoolVar(&c.Immediate, "capacity-for-immediate-binding", false,
		"Publish also for classes with immediate binding, which the scheduler ignores.")
	set.Float32Var(&c.QPS, "kube-api-capacity-qps", 1,
		"Requests per second to the API server for publishing capacities; 0 for 5, a negative number for no limit.")
	set.IntVar(&c.Burst, "kube-api-capacity-burst", 5,
		"Burst of requests to the API server for publishing capacities; 0 for 10.")
	c.Pod = os.Getenv("POD_NAME")
	c.Namespace = os.Getenv("NAMESPACE")
}

func (c CapacityConfig) validate() error {
	switch {
	case !c.Enabled:
		return nil
	case c.Threads <= 0:
		return fmt.Errorf("--capacity-threads is %d, must be positive", c.Threads)
	case c.PollInterval <= 0:
		return fmt.Errorf("--capacity-poll-interval is %s, must be positive", c.PollInterval)
	case c.Namespace == "":
		return errors.New("--enable-capacity needs NAMESPACE in the environment")
	case c.Pod == "" && c.OwnerLevel > capacity.NoOwner:
		return errors.New("--enable-capacity needs POD_NAME in the environment, or --capacity-ownerref-level=-1")
	}
	return nil
}
