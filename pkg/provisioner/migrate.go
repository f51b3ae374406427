package provisioner

import (
	"context"
	"strconv"

	"github.com/kubernetes-csi/csi-lib-utils/connection"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// translate puts the class of a claim into the driver's terms.
func (s *session) translate(ctx context.Context, options controller.ProvisionOptions) (translated controller.ProvisionOptions, migrated bool, err error) {
	options.StorageClass, migrated, err = s.migration.Class(klog.FromContext(ctx), options.StorageClass)
	return options, migrated, err
}

// aboutMigrated has the metrics of calls say whether they are about a volume of the
// in-tree plugin.
func aboutMigrated(ctx context.Context, migrated bool) context.Context {
	return context.WithValue(ctx, connection.AdditionalInfoKey, connection.AdditionalInfo{Migrated: strconv.FormatBool(migrated)})
}

// asCSI is a PersistentVolume in the driver's terms, and as it is when it cannot be
// put into them: then it is no volume of the driver.
func (p *Provisioner) asCSI(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	translated, err := p.migration.Volume(klog.Background(), volume)
	if err != nil {
		return volume
	}
	return translated
}
