package driver

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// checkCapabilities reports why a volume cannot have all of these capabilities.
func checkCapabilities(caps []*csi.VolumeCapability) error {
	if len(caps) == 0 {
		return fmt.Errorf("%w: no volume capabilities", volume.ErrInvalid)
	}
	for _, c := range caps {
		if err := checkCapability(c); err != nil {
			return err
		}
	}
	return nil
}

func checkCapability(c *csi.VolumeCapability) error {
	if c == nil {
		return fmt.Errorf("%w: no volume capability", volume.ErrInvalid)
	}
	switch c.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	default:
		return fmt.Errorf("%w: access mode %s", volume.ErrInvalid, c.GetAccessMode().GetMode())
	}
	switch {
	case c.GetBlock() != nil:
		return fmt.Errorf("%w: block access, an NFS volume is a file system", volume.ErrInvalid)
	case c.GetMount() == nil:
		return fmt.Errorf("%w: no access type", volume.ErrInvalid)
	}
	switch fsType := c.GetMount().GetFsType(); fsType {
	case "", "nfs", "nfs4":
		return nil
	default:
		return fmt.Errorf("%w: fsType %q, must be nfs, nfs4 or empty", volume.ErrInvalid, fsType)
	}
}

// mountOptions are the mount options of a capability. fsType nfs4 asks for version 4,
// of which an option may choose the minor version.
func mountOptions(c *csi.VolumeCapability) []string {
	var options []string
	if c.GetMount().GetFsType() == "nfs4" {
		options = append(options, "vers=4")
	}
	return append(options, c.GetMount().GetMountFlags()...)
}
