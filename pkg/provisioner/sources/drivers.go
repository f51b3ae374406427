package sources

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// foreign reports whether an origin is known to be another driver's. That driver's
// provisioner may be filling a volume from it for a claim that is gone. An origin of
// no known driver is not foreign, or nothing would ever release it.
func (p *Protection) foreign(ctx context.Context, origin plan.Origin) (foreign bool, err error) {
	if origin.Kind == plan.ClaimOrigin {
		foreign, err = p.foreignClaim(origin)
	} else {
		foreign, err = p.foreignSnapshot(ctx, origin)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return foreign, err
}

func (p *Protection) foreignSnapshot(ctx context.Context, origin plan.Origin) (bool, error) {
	snapshot, err := p.config.Sources.Snapshot(ctx, origin)
	if err != nil || snapshot.Status.BoundVolumeSnapshotContentName == "" {
		return false, err
	}
	content, err := p.config.Sources.SnapshotContent(ctx, snapshot.Status.BoundVolumeSnapshotContentName)
	return err == nil && content.Spec.Driver != p.config.Cluster.Driver.DriverName, err
}

func (p *Protection) foreignClaim(origin plan.Origin) (bool, error) {
	claim, err := p.config.Cluster.Claim(origin.Namespace, origin.Name)
	if err != nil || claim.Spec.VolumeName == "" {
		return false, err
	}
	volume, err := p.config.Cluster.Volume(claim.Spec.VolumeName)
	if err != nil {
		return false, err
	}
	// Only the driver that has taken over an in-tree plugin clones its volumes.
	source := p.config.Cluster.AsCSI(volume).Spec.CSI
	return source == nil || source.Driver != p.config.Cluster.Driver.DriverName, nil
}
