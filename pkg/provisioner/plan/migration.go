package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// migratedToAnnotation on the claims and volumes of an in-tree plugin is the name of
// the CSI driver that the controller-manager leaves them to.
const migratedToAnnotation = "pv.kubernetes.io/migrated-to"

// Migration is the in-tree plugin whose volumes a CSI driver has taken over. The API
// server still has them as the plugin's, and the driver sees them as its own. The zero Migration is that of a driver that has taken over nothing.
type Migration struct {
	driver, plugin string
	translator     csitranslation.CSITranslator
}

// NewMigration returns the zero Migration for most drivers.
func NewMigration(driver string) Migration {
	translator := csitranslation.New()
	plugin, err := translator.GetInTreeNameFromCSIName(driver)
	if err != nil {
		return Migration{}
	}
	return Migration{driver: driver, plugin: plugin, translator: translator}
}

// IsZero is true for a driver that has taken over nothing.
func (m Migration) IsZero() bool { return m.plugin == "" }

// Names are the provisioner names in classes and claims of the plugin.
func (m Migration) Names() []string {
	if m.IsZero() {
		return nil
	}
	return []string{m.plugin}
}

// WaitsForPlugin reports whether a claim is the in-tree plugin's own, since the
// controller-manager has not left it to the driver.
func (m Migration) WaitsForPlugin(claim *corev1.PersistentVolumeClaim) bool {
	return !m.IsZero() && ProvisionerOf(claim) == m.plugin && claim.Annotations[migratedToAnnotation] != m.driver
}

// Wants reports whether the driver provisions the claim.
func (m Migration) Wants(claim *corev1.PersistentVolumeClaim, driver string) bool {
	name := ProvisionerOf(claim)
	return name == driver || !m.IsZero() && name == m.plugin && !m.WaitsForPlugin(claim)
}

// Class translates a class of the plugin for the driver; migrated is true if it was
// one.
func (m Migration) Class(logger klog.Logger, class *storagev1.StorageClass) (translated *storagev1.StorageClass, migrated bool, err error) {
	if m.IsZero() || class.Provisioner != m.plugin {
		return class, false, nil
	}
	translated, err = m.translator.TranslateInTreeStorageClassToCSI(logger, m.plugin, class)
	if err != nil {
		return nil, false, fmt.Errorf("%w: translate its parameters for CSI driver %s: %w", ErrClass, m.driver, err)
	}
	// The volume will be the plugin's; some translations change this field too.
	translated.Provisioner = class.Provisioner
	return translated, true, nil
}

// Volume translates a PersistentVolume of the plugin to a CSI volume.
func (m Migration) Volume(logger klog.Logger, volume *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if m.IsZero() || volume.Spec.CSI != nil {
		return volume, nil
	}
	plugin, err := m.translator.GetInTreePluginNameFromSpec(volume, nil)
	if err != nil || plugin != m.plugin {
		return volume, nil //nolint:nilerr // not a volume of the plugin
	}
	translated, err := m.translator.TranslateInTreePVToCSI(logger, volume)
	if err != nil {
		return nil, fmt.Errorf("%w: translate %s for CSI driver %s: %w", ErrVolume, volume.Name, m.driver, err)
	}
	return translated, nil
}

// Same reports whether a PersistentVolume is for the volume with the handle. A volume
// of the plugin does not have everything that is in its handle, such as the project
// of a disk: volumes that the plugin cannot distinguish count as the same, so that
// none is deleted by mistake.
func (m Migration) Same(logger klog.Logger, volume *corev1.PersistentVolume, driver, handle string) bool {
	if source := volume.Spec.CSI; source != nil {
		return source.Driver == driver && source.VolumeHandle == handle
	}
	translated, err := m.Volume(logger, volume)
	if err != nil {
		return true // a volume of the plugin, of unknown handle
	}
	if translated.Spec.CSI == nil {
		return false
	}
	translated = translated.DeepCopy()
	translated.Spec.CSI.VolumeHandle = handle
	back, err := m.translator.TranslateCSIPVToInTree(translated)
	return err != nil || equality.Semantic.DeepEqual(back.Spec.PersistentVolumeSource, volume.Spec.PersistentVolumeSource)
}

// MayDelete reports whether the driver deletes the volume of a PersistentVolume of the
// plugin: one that was left to the driver, or that only the finalizer of the driver's
// provisioner still holds.
func (m Migration) MayDelete(volume *corev1.PersistentVolume) bool {
	return volume.Spec.CSI != nil || m.IsZero() || volume.Annotations[migratedToAnnotation] == m.driver || volume.DeletionTimestamp != nil
}

// Saved is the form in which a PersistentVolume is saved: the plugin's, if the claim's
// class is.
func (m Migration) Saved(creation *Creation, volume *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if !creation.Migrated {
		return volume, nil
	}
	if m.IsZero() {
		return nil, fmt.Errorf("%w: %s belongs to an in-tree plugin that CSI driver %s has not taken over", ErrVolume, volume.Name, volume.Spec.CSI.Driver)
	}
	translated, err := m.translator.TranslateCSIPVToInTree(volume)
	if err != nil {
		return nil, fmt.Errorf("%w: translate %s for in-tree plugin %s: %w", ErrResponse, volume.Name, m.plugin, err)
	}
	return translated, nil
}
