package nfsmount

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// maxStacked bounds how many stacked mounts one Unmount removes. More than that are
// no leftovers: another process mounts there at the same time.
const maxStacked = 16

// Unmount implements Mounter. It first tries an orderly unmount, which writes back
// cached data and notifies the server, and detaches the mount if that takes too long.
func (k *Kernel) Unmount(ctx context.Context, target string) error {
	orderly := true
	for range maxStacked {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
		err := errNoAnswer
		if orderly {
			err = k.umount(ctx, target, unix.UMOUNT_NOFOLLOW)
			orderly = !errors.Is(err, errNoAnswer)
		}
		if errors.Is(err, unix.EBUSY) || errors.Is(err, errNoAnswer) {
			err = k.detach(ctx, target)
		}
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // umount(2): not a mount point
			return nil
		case err != nil:
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return fmt.Errorf("unmount %s: still mounted after removing %d mounts", target, maxStacked)
}

// detach removes the topmost mount from the table at once. Only the kernel's cleanup
// can take long after that.
func (k *Kernel) detach(ctx context.Context, target string) error {
	err := k.umount(ctx, target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if !errors.Is(err, errNoAnswer) {
		return err
	}
	if info, tableErr := infoAt(target); tableErr != nil || info != nil {
		return errors.Join(err, tableErr)
	}
	return unix.EINVAL // what the next call would return
}

func (k *Kernel) umount(ctx context.Context, target string, flags int) error {
	what := fmt.Sprintf("umount2(%s, %#x)", target, flags)
	_, err := k.unmounts.do(ctx, what, k.cfg.UnmountTimeout, func() (struct{}, error) {
		return struct{}{}, k.sys.unmount(target, flags)
	})
	return err
}
