package sources

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// Cluster reads claims and their volumes.
type Cluster interface {
	Claim(namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Volume(name string) (*corev1.PersistentVolume, error)
	// AsCSI translates a volume of an in-tree plugin.
	AsCSI(volume *corev1.PersistentVolume) *corev1.PersistentVolume
	// Wants reports whether the driver provisions a claim.
	Wants(claim *corev1.PersistentVolumeClaim) bool
}

// drivers look up the driver of an origin.
type drivers struct {
	own     string
	sources Reader
	cluster Cluster
}

// foreign reports whether an origin is known to be another driver's. That driver's
// provisioner may be filling a volume from it for a claim that is gone. An origin of
// no known driver is not foreign, or nothing would ever release it.
func (d drivers) foreign(ctx context.Context, origin plan.Origin) (foreign bool, err error) {
	if origin.Kind == plan.ClaimOrigin {
		foreign, err = d.foreignClaim(origin)
	} else {
		foreign, err = d.foreignSnapshot(ctx, origin)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return foreign, err
}

func (d drivers) foreignSnapshot(ctx context.Context, origin plan.Origin) (bool, error) {
	snapshot, err := d.sources.Snapshot(ctx, origin)
	if err != nil || snapshot.ContentName() == "" {
		return false, err
	}
	content, err := d.sources.SnapshotContent(ctx, snapshot.ContentName())
	return err == nil && content.Spec.Driver != d.own, err
}

func (d drivers) foreignClaim(origin plan.Origin) (bool, error) {
	claim, err := d.cluster.Claim(origin.Namespace, origin.Name)
	if err != nil || claim.Spec.VolumeName == "" {
		return false, err
	}
	volume, err := d.cluster.Volume(claim.Spec.VolumeName)
	if err != nil {
		return false, err
	}
	// Only the driver that has taken over an in-tree plugin clones its volumes.
	source := d.cluster.AsCSI(volume).Spec.CSI
	return source == nil || source.Driver != d.own, nil
}
