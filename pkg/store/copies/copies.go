// Package copies makes volumes with content, snapshots and group snapshots. What it
// makes is renamed to its place when it is complete.
package copies

import (
	"context"
	"fmt"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Config of Copies.
type Config struct {
	Exports *session.Exports
	Volumes volumes.Config
	// Workers is how many files one copy copies at a time.
	Workers int
	// Target of a directory on an export as it is mounted, or else with these options.
	Target func(k session.Key, options []string) session.Target
	// Kick is called when there may be something to reclaim on a target's export.
	Kick func(session.Target)
}

// Copies made by this process. Close them after use.
type Copies struct {
	*copyjob.Pool
	// Volumes that are being made. The owner of a job is the name of its volume.
	Volumes   *copyjob.Jobs[volumeIdentity, volumes.Volume]
	cfg       Config
	snapshots *copyjob.Jobs[snapshotIdentity, Snapshot]
	groups    *copyjob.Jobs[snapshotIdentity, Group]
}

// New returns Copies without jobs.
func New(ctx context.Context, cfg Config) *Copies {
	pool := copyjob.NewPool(ctx, cfg.Exports)
	return &Copies{
		Pool: pool, cfg: cfg,
		Volumes:   copyjob.In[volumeIdentity, volumes.Volume](pool),
		snapshots: copyjob.In[snapshotIdentity, Snapshot](pool),
		groups:    copyjob.In[snapshotIdentity, Group](pool),
	}
}

// volumeIdentity is the record of the volume. Classes may give two volumes one
// directory.
type volumeIdentity catalog.Record

// Differs implements copyjob.Identity.
func (i volumeIdentity) Differs(other volumeIdentity) error {
	return volumes.SameRequest(catalog.Record(i), catalog.Record(other), volumes.SizeRange{})
}

// snapshotIdentity is the CSI name of a snapshot or group, and what it is made of.
type snapshotIdentity struct{ name, sources string }

// Differs implements copyjob.Identity.
func (i snapshotIdentity) Differs(other snapshotIdentity) error {
	switch {
	case i.name != other.name:
		return fmt.Errorf("%w: it has the name %q, requested is %q", volume.ErrOwned, i.name, other.name)
	case i.sources != other.sources:
		return fmt.Errorf("%w: it is made from %q, requested is %q", volume.ErrIncompatible, i.sources, other.sources)
	}
	return nil
}

// Busy returns an error while the volume of k is copied or is being made.
func (c *Copies) Busy(k session.Key) error {
	if c.Volumes.Running(k) {
		return fmt.Errorf("%w: %s is being made", volume.ErrInProgress, k)
	}
	return c.Free(k)
}
