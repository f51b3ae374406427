package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/keyed"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const targetMode = 0o750

// publication is one volume at one target path.
type publication struct {
	mount nfsmount.Mount
	// exclusive publications exclude any other target on this node.
	exclusive bool
	// mode of the volume's directory, 0 to leave it.
	mode volume.Mode
	// readers says that the access mode is one for readers only. It does not decide, but an
	// earlier version mounted such volumes read-only, and those mounts stay.
	readers bool
	// inline volumes are written by pods, which may have planted symlinks on the share.
	inline bool
}

// publisher makes and ends publications. It keeps no state: the mount table has what is
// published, also after a restart.
type publisher struct {
	mounter nfsmount.Mounter
	own     string // directory of the controller's mounts, which are not publications
	targets keyed.Limiter[string]
	sources keyed.Limiter[string] // acquired after targets, for exclusive publications
}

func (p *publisher) publish(ctx context.Context, pub publication) error {
	target, err := canonical(pub.mount.Target)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(pub.mount.Target), targetMode); err == nil {
			target, err = canonical(pub.mount.Target)
		}
	}
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	pub.mount.Target = target
	unlock, err := p.targets.Acquire(ctx, target)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.publishLocked(ctx, pub); err != nil {
		return err
	}
	return p.permit(ctx, pub)
}

func (p *publisher) publishLocked(ctx context.Context, pub publication) error {
	err := os.Mkdir(pub.mount.Target, targetMode)
	if errors.Is(err, fs.ErrExist) {
		var done bool
		if done, err = p.settle(ctx, pub); done {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("publish at %s: %w", pub.mount.Target, err)
	}
	if err := p.mount(ctx, pub); err != nil {
		// Nothing is mounted; kubelet detects that by the missing directory.
		if rmErr := os.Remove(pub.mount.Target); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			klog.FromContext(ctx).Error(rmErr, "Failed to remove the target of a failed publish", logkeys.Target, pub.mount.Target)
		}
		return err
	}
	return nil
}

func (p *publisher) mount(ctx context.Context, pub publication) error {
	if pub.exclusive {
		unlock, err := p.sources.Acquire(ctx, pub.mount.Source())
		if err != nil {
			return err
		}
		defer unlock()
		if err := p.checkExclusive(ctx, pub); err != nil {
			return err
		}
	}
	if err := p.mounter.Mount(ctx, pub.mount); err != nil || (!pub.inline && pub.mount.SubDir == "") {
		return err
	}
	if err := p.checkWhere(ctx, pub); err != nil {
		return errors.Join(err, p.mounter.Unmount(ctx, pub.mount.Target))
	}
	return nil
}

// checkWhere checks that the mount table shows the requested source.
func (p *publisher) checkWhere(ctx context.Context, pub publication) error {
	top, mounted, err := p.mounter.MountAt(ctx, pub.mount.Target)
	if err != nil {
		return err
	}
	if !mounted || !pub.shownAs(top.Source) {
		return fmt.Errorf("%w: %s leads to %s", errElsewhere, pub.mount.Source(), top.Source)
	}
	return nil
}

// shownAs tells whether source, from the mount table, is this publication. An NFSv4
// client follows symlinks in the path anywhere on the server, and the table has the
// result. The path of the share belongs to the administrator and may have symlinks;
// the volume's path below it may not, nor may any path that a pod names.
func (pub publication) shownAs(source string) bool {
	m := pub.mount
	if source == m.Source() || pub.inline || m.SubDir == "" {
		return source == m.Source()
	}
	server := strings.TrimSuffix(m.Export.String(), m.Export.Share)
	return strings.HasPrefix(source, server+"/") && strings.HasSuffix(source, "/"+m.SubDir)
}

// settle handles an existing target: done if the volume is already published there, an
// error if something else is. It unmounts a stale mount. It asks the server only about
// a mount that matches in the mount table.
func (p *publisher) settle(ctx context.Context, pub publication) (done bool, err error) {
	top, mounted, err := p.mounter.MountAt(ctx, pub.mount.Target)
	if err != nil || !mounted {
		return false, err
	}
	if err := samePublication(top, pub); err != nil {
		return false, err
	}
	_, err = p.mounter.Usage(ctx, top)
	switch {
	case err == nil, errors.Is(err, volume.ErrUnreachable):
		// While the server is down the mount is still the right one: pods wait, and
		// continue when it is back.
		return true, nil
	case errors.Is(err, volume.ErrStale):
		klog.FromContext(ctx).Info("Replacing a stale mount", logkeys.Target, pub.mount.Target, logkeys.Source, top.Source, logkeys.Err, err)
		return false, p.mounter.Unmount(ctx, pub.mount.Target)
	}
	return false, err
}

func samePublication(e nfsmount.Entry, pub publication) error {
	if !e.IsNFS() || !pub.shownAs(e.Source) {
		return fmt.Errorf("%w: %s (%s) is mounted there", errPublishedOtherwise, e.Source, e.FSType)
	}
	if want := pub.mount.Options.ReadOnly(); e.ReadOnly != want && (want || !pub.readers) {
		return fmt.Errorf("%w: read-only is %v, requested is %v", errPublishedOtherwise, e.ReadOnly, pub.mount.Options.ReadOnly())
	}
	return nil
}

func (p *publisher) checkExclusive(ctx context.Context, pub publication) error {
	table, err := p.mounter.Mounts(ctx)
	if err != nil {
		return err
	}
	for _, e := range table {
		if p.own != "" && filepath.Dir(e.Target) == p.own {
			continue
		}
		// Root distinguishes the volume from kubelet's bind mounts of directories in it.
		if e.IsNFS() && e.Root == "/" && e.Source == pub.mount.Source() && e.Target != pub.mount.Target {
			return fmt.Errorf("%w: %s is published at %s", errExclusive, e.Source, e.Target)
		}
	}
	return nil
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
	if top.ReadOnly {
		return nil // of an earlier version, see readers
	}
	if err := p.mounter.SetMode(ctx, top, pub.mode); err != nil {
		return fmt.Errorf("mountPermissions of %s: %w", pub.mount.Source(), err)
	}
	return nil
}

// published finds the NFS mount at a target in the mount table. It does not access the
// target itself.
func (p *publisher) published(ctx context.Context, target string) (nfsmount.Entry, error) {
	dir, err := canonical(target)
	if errors.Is(err, fs.ErrNotExist) || !filepath.IsAbs(target) {
		return nfsmount.Entry{}, fmt.Errorf("%w: nothing is published at %s", volume.ErrNotFound, target)
	}
	if err != nil {
		return nfsmount.Entry{}, err
	}
	top, mounted, err := p.mounter.MountAt(ctx, dir)
	if err != nil {
		return nfsmount.Entry{}, err
	}
	if !mounted || !top.IsNFS() {
		return nfsmount.Entry{}, fmt.Errorf("%w: nothing is published at %s", volume.ErrNotFound, target)
	}
	return top, nil
}

// unpublish unmounts target and removes the directory, but only if it is empty: content
// that is not mounted belongs to somebody else.
func (p *publisher) unpublish(ctx context.Context, target string) error {
	target, err := canonical(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("unpublish: %w", err)
	}
	unlock, err := p.targets.Acquire(ctx, target)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.mounter.Unmount(ctx, target); err != nil {
		return fmt.Errorf("unpublish: %w", err)
	}
	err = unix.Rmdir(target)
	if errors.Is(err, unix.ENOTDIR) {
		err = os.Remove(target)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unpublish: remove %s: %w", target, err)
	}
	return nil
}

// canonical is the target without symlinks, as in the mount table. It resolves only the
// parent directories and not the target, which may be a mount of a dead server.
func canonical(target string) (string, error) {
	dir := filepath.Dir(target)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is written
	dir, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(target)), nil
}
