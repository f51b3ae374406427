package provisioner

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// wants tells whether the driver is to make the claim's volume.
func (p *Provisioner) wants(claim *corev1.PersistentVolumeClaim) bool {
	return p.migration.Wants(claim, p.config.Driver.Facts().Name)
}

// foreign tells whether an origin is known to be another driver's. Its provisioner
// may be filling a volume from it whose claim is gone, of which nothing can be seen
// from here. What is of no known driver is not foreign, or nobody would let it go.
func (p *Provisioner) foreign(ctx context.Context, origin plan.Origin) (bool, error) {
	driver, err := p.driverOf(ctx, origin)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return driver != "" && driver != p.config.Driver.Facts().Name, err
}

// driverOf is the driver that has the origin, empty when nothing says so.
func (p *Provisioner) driverOf(ctx context.Context, origin plan.Origin) (string, error) {
	if origin.Kind == plan.ClaimOrigin {
		return p.driverOfClaim(origin)
	}
	snapshot, err := p.sources.snapshot(ctx, origin)
	if err != nil || snapshot.ContentName() == "" {
		return "", err
	}
	content, err := p.sources.snapshotContent(ctx, snapshot.ContentName())
	if err != nil {
		return "", err
	}
	return content.Spec.Driver, nil
}

func (p *Provisioner) driverOfClaim(origin plan.Origin) (string, error) {
	claim, err := p.claims.PersistentVolumeClaims(origin.Namespace).Get(origin.Name)
	if err != nil || claim.Spec.VolumeName == "" {
		return "", err
	}
	volume, err := p.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return "", err
	}
	if source := p.asCSI(volume).Spec.CSI; source != nil {
		return source.Driver, nil
	}
	return "", nil
}
