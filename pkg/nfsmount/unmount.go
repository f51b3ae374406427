package nfsmount

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// maxStacked bounds how many mounts on top of each other one Unmount takes
// away; more is not a leftover but somebody mounting as we unmount.
const maxStacked = 16

// Unmount implements Mounter. It goes in order if that goes quickly, which
// tells the server and writes back what is cached, and detaches if it does not.
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
	return fmt.Errorf("unmount %s: still mounted after taking away %d mounts", target, maxStacked)
}

// detach takes the topmost mount out of the table at once. What can take long
// after that is only the kernel's own tidying up.
func (k *Kernel) detach(ctx context.Context, target string) error {
	err := k.umount(ctx, target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if !errors.Is(err, errNoAnswer) {
		return err
	}
	if info, tableErr := infoAt(target); tableErr != nil || info != nil {
		return errors.Join(err, tableErr)
	}
	return unix.EINVAL // as the next call would say
}

func (k *Kernel) umount(ctx context.Context, target string, flags int) error {
	what := fmt.Sprintf("umount2(%s, %#x)", target, flags)
	_, err := k.unmounts.do(ctx, what, k.cfg.UnmountTimeout, func() (struct{}, error) {
		return struct{}{}, k.sys.unmount(target, flags)
	})
	return err
}
