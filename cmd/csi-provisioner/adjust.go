package main

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

const (
	defaultRetryMin             = time.Second
	defaultRetryMax             = 5 * time.Minute
	defaultCapacityPollInterval = time.Minute

	// noDelay is for delays that must be positive.
	noDelay = time.Millisecond
)

// adjust replaces values with which external-provisioner starts, so that its flags can be
// taken over, by ones that are valid and do no harm. It logs those that have another
// effect there.
func (c *Config) adjust(ctx context.Context) {
	replaced := func(flag string, value, used any, reason string) {
		klog.FromContext(ctx).Info("Replacing the value of a flag",
			logkeys.Flag, flag, logkeys.Value, value, logkeys.Used, used, logkeys.Reason, reason)
	}
	if c.Pprof && c.httpEndpoint() == "" {
		replaced("--enable-pprof", true, false, "there is no --http-endpoint to serve profiles on")
		c.Pprof = false
	}
	if c.RetryMin <= 0 {
		replaced("--retry-interval-start", c.RetryMin, defaultRetryMin, "failed calls would be repeated without a pause")
		c.RetryMin = defaultRetryMin
	}
	if c.RetryMax <= 0 {
		replaced("--retry-interval-max", c.RetryMax, defaultRetryMax, "failed calls would be repeated without a pause")
		c.RetryMax = defaultRetryMax
	}
	// Every retry waits for the maximum then.
	c.RetryMin = min(c.RetryMin, c.RetryMax)
	if c.ProtectionWorkers == 0 {
		replaced("--cloning-protection-threads", 0, 1, "finalizers would stay on the sources of volumes")
		c.ProtectionWorkers = 1
	}
	c.OrphanSweepInterval = max(c.OrphanSweepInterval, 0)
	c.KubeAPIBurst = max(c.KubeAPIBurst, 0)
	if c.Capacity.Enabled {
		c.Capacity.adjust(replaced)
	}
	c.Node.BaseDelay, c.Node.MaxDelay = max(c.Node.BaseDelay, noDelay), max(c.Node.MaxDelay, noDelay)
	c.Node.BaseDelay = min(c.Node.BaseDelay, c.Node.MaxDelay)
}

func (c *CapacityConfig) adjust(replaced func(flag string, value, used any, reason string)) {
	if c.Threads == 0 {
		replaced("--capacity-threads", 0, 1, "no capacity would be published")
		c.Threads = 1
	}
	if c.PollInterval <= 0 {
		replaced("--capacity-poll-interval", c.PollInterval, defaultCapacityPollInterval, "the driver would be called without a pause")
		c.PollInterval = defaultCapacityPollInterval
	}
	c.Burst = max(c.Burst, 0)
}
