package driver

import (
	"context"
	"fmt"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// modeToSet is what mountPermissions of a PersistentVolume of csi-driver-nfs asks
// for, which sets it at each publish. The directory has to be the volume's own,
// and not the export; the author of a pod may ask for none.
func modeToSet(a volume.Attributes, options nfsmount.Options, inline bool) volume.Mode {
	if inline || a.SubDir == "" || options.ReadOnly() {
		return 0
	}
	return a.Mode
}

// permit gives the directory of what has been published its mode. Should that
// fail, the volume stays published, and the same call does what is missing.
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
