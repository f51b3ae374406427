package store

import (
	"context"
	"fmt"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// copies are the copy jobs, by kind.
type copies struct {
	*copyjob.Pool
	volumes   *copyjob.Jobs[volumeIdentity, Created]
	snapshots *copyjob.Jobs[snapshotIdentity, Snapshot]
	groups    *copyjob.Jobs[snapshotIdentity, Group]
}

func newCopies(ctx context.Context, exports *session.Exports) copies {
	pool := copyjob.NewPool(ctx, exports)
	return copies{
		Pool:      pool,
		volumes:   copyjob.In[volumeIdentity, Created](pool),
		snapshots: copyjob.In[snapshotIdentity, Snapshot](pool),
		groups:    copyjob.In[snapshotIdentity, Group](pool),
	}
}

// volumeIdentity is the record of the volume. Classes may give two volumes one
// directory.
type volumeIdentity catalog.Record

// Differs implements copyjob.Identity.
func (i volumeIdentity) Differs(other volumeIdentity) error {
	return volumes.SameRequest(catalog.Record(i), catalog.Record(other), SizeRange{})
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

// busy returns an error while a copy is made of a volume, or is to become it.
func (c copies) busy(k session.Key) error {
	if c.volumes.Running(k) {
		return fmt.Errorf("%w: %s is being made", volume.ErrInProgress, k)
	}
	return c.Free(k)
}
