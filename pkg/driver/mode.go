package driver

import (
	"context"
	"fmt"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// modeToSet is the mountPermissions of a PersistentVolume of csi-driver-nfs, which
// applies them at each publish. They apply only to a volume's own directory, not to an
// export, and not to inline volumes.
func modeToSet(a volume.Attributes, options nfsmount.Options, inline bool) volume.Mode {
	if inline || a.SubDir == "" || options.ReadOnly() {
		return 0
	}
	return a.Mode
}

// permit sets the mode of a published volume's directory. If that fails, the volume
// stays published, and a retry sets it.
func (p *publisher) permit(ctx context.Context, pub publication) error {
	if pub.mode == 0 {
		return nil
	}
	top, mounted, err := p.mounter.MountAt(ctx, pub.mount.Target)
	if err != nil {
		return err
	}
	if !mounted {
		return fmt.Errorf("%w: nothing is mounted at %s", volume.ErrStale, pub.mount.Target)
	}
	if err := p.mounter.SetMode(ctx, top, pub.mode); err != nil {
		return fmt.Errorf("mountPermissions of %s: %w", pub.mount.Source(), err)
	}
	return nil
}
