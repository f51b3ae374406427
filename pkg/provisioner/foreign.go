package provisioner

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// wants tells whether the driver is to make the claim's volume.
func (p *Provisioner) wants(claim *corev1.PersistentVolumeClaim) bool {
	return p.migration.Wants(claim, p.config.Driver.Capabilities().DriverName)
}

// foreign tells whether an origin is known to be another driver's. Its provisioner
// may be filling a volume from it whose claim is gone, of which nothing can be seen
// from here. What is of no known driver is not foreign, or nobody would let it go.
func (p *Provisioner) foreign(ctx context.Context, origin plan.Origin) (foreign bool, err error) {
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

func (p *Provisioner) foreignSnapshot(ctx context.Context, origin plan.Origin) (bool, error) {
	snapshot, err := p.sources.snapshot(ctx, origin)
	if err != nil || snapshot.ContentName() == "" {
		return false, err
	}
	content, err := p.sources.snapshotContent(ctx, snapshot.ContentName())
	return err == nil && content.Spec.Driver != p.config.Driver.Capabilities().DriverName, err
}

func (p *Provisioner) foreignClaim(origin plan.Origin) (bool, error) {
	claim, err := p.claims.PersistentVolumeClaims(origin.Namespace).Get(origin.Name)
	if err != nil || claim.Spec.VolumeName == "" {
		return false, err
	}
	volume, err := p.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return false, err
	}
	// Of one that is not CSI's only the driver that has taken over its plugin clones.
	source := p.asCSI(volume).Spec.CSI
	return source == nil || source.Driver != p.config.Driver.Capabilities().DriverName, nil
}
