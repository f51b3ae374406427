package volumes

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/journal"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/sources"
)

// Driver creates and deletes volumes.
type Driver interface {
	Capabilities() plan.Capabilities
	CreateVolume(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error)
	DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error)
}

// Topology says how volumes are placed. The zero Topology ignores the driver's.
type Topology struct {
	// Enabled places volumes.
	Enabled bool
	// Strict and Immediate are as in plan.Placement.
	Strict, Immediate bool
}

// Config of Volumes.
type Config struct {
	// Base bounds the lifetime of cleanups under way.
	Base       context.Context
	Cluster    *cluster.Cluster
	Driver     Driver
	Sources    sources.Reader
	Protection *sources.Protection
	Journal    *journal.Journal
	Events     record.EventRecorder
	Metrics    *Metrics
	// Options of every volume; Options.Driver is read from Driver for each claim.
	Options  plan.Options
	Topology Topology
	// Retries delays failed cleanups, by volume name, up to RetryMax.
	Retries  workqueue.TypedRateLimiter[string]
	RetryMax time.Duration
	// CleanupLimit bounds how long a cleanup may fail that the driver has not answered.
	CleanupLimit time.Duration
}
