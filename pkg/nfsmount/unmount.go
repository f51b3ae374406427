package nfsmount

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// maxStacked bounds how many mounts on top of each other one Unmount takes
// away; more is not a leftover but somebody mounting as we unmount.
const maxStacked = 16

// errNoAnswer: a system call has not come back in its time.
var errNoAnswer = errors.New("system call has not returned")

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
	if mounted, tableErr := k.mounted(target); tableErr != nil || mounted {
		return errors.Join(err, tableErr)
	}
	return unix.EINVAL // as the next call would say
}

func (k *Kernel) umount(ctx context.Context, target string, flags int) error {
	return k.bounded(ctx, fmt.Sprintf("umount2(%s, %#x)", target, flags), k.cfg.UnmountTimeout, func() error {
		return k.sys.unmount(target, flags)
	})
}

func (k *Kernel) mounted(target string) (bool, error) {
	found, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(target))
	return len(found) > 0, err
}

// Mounts implements Mounter.
func (k *Kernel) Mounts(context.Context) ([]Entry, error) {
	infos, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	entries := make([]Entry, 0, len(infos))
	for _, i := range infos {
		entries = append(entries, entryOf(i))
	}
	return entries, nil
}

func entryOf(i *mountinfo.Info) Entry {
	e := Entry{Target: i.Mountpoint, Source: i.Source, FSType: i.FSType, Root: i.Root}
	for _, opt := range splitOptions(i.Options) {
		e.ReadOnly = e.ReadOnly || opt == "ro"
	}
	return e
}

// Check implements Mounter.
func (k *Kernel) Check(ctx context.Context, target string) error {
	err := k.bounded(ctx, "statfs("+target+")", k.cfg.CheckTimeout, func() error { return k.sys.statfs(target) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoAnswer):
		return fmt.Errorf("check %s: %w: %w", target, volume.ErrUnreachable, err)
	case mountutils.IsCorruptedMnt(err):
		return fmt.Errorf("check %s: %w: %w", target, volume.ErrStale, err)
	}
	return fmt.Errorf("check %s: %w", target, err)
}

// inflight is a system call that has not come back; err counts once done is closed.
type inflight struct {
	done chan struct{}
	err  error
}

// bounded runs a system call that a dead server can block, and stops waiting
// for it after d or when ctx ends. Until it has come back the same call is not
// made again: who asks for it joins the wait, so retries cost no threads.
func (k *Kernel) bounded(ctx context.Context, key string, d time.Duration, call func() error) error {
	k.mu.Lock()
	c := k.calls[key]
	if c == nil {
		c = &inflight{done: make(chan struct{})}
		k.calls[key] = c
		go func() {
			c.err = call()
			k.mu.Lock()
			delete(k.calls, key)
			k.mu.Unlock()
			close(c.done)
		}()
	}
	k.mu.Unlock()

	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-timer.C:
		return fmt.Errorf("%s: %w within %s", key, errNoAnswer, d)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w: %w", key, errNoAnswer, ctx.Err())
	}
}
