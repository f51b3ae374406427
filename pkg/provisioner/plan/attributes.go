package plan

import (
	"fmt"
	"maps"

	storagev1 "k8s.io/api/storage/v1"
)

// CheckAttributes rejects a VolumeAttributesClass that cannot be used whatever it
// contains.
func CheckAttributes(name string, options Options) error {
	switch {
	case !options.AttributesClasses:
		return fmt.Errorf("%w: it names VolumeAttributesClass %q, which needs --feature-gates=VolumeAttributesClass=true", ErrClaim, name)
	case !options.Driver.Modify:
		return fmt.Errorf("%w: it names VolumeAttributesClass %q, and CSI driver %s does not declare MODIFY_VOLUME", ErrClaim, name, options.Driver.DriverName)
	}
	return nil
}

// Modify applies a VolumeAttributesClass.
func (c *Creation) Modify(class *storagev1.VolumeAttributesClass) error {
	if driver := c.Template.Spec.CSI.Driver; class.DriverName != driver {
		return fmt.Errorf("%w: its VolumeAttributesClass %q is for CSI driver %s, but the claim uses %s",
			ErrClaim, class.Name, class.DriverName, driver)
	}
	c.Request.MutableParameters = maps.Clone(class.Parameters)
	c.Template.Spec.VolumeAttributesClassName = &class.Name
	return nil
}
