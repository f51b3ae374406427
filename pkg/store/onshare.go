package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// acquire is one of the two ways to a share.
type acquire func(ctx context.Context) (*share.Handle, error)

// callsAtATime is how many calls work on one server. A server that dies blocks at
// most that many threads, which cannot be taken back; further callers fail with
// volume.ErrUnreachable.
const callsAtATime = 64

// askAgain is how often a caller who waits for a job asks whether the server is
// still there.
const askAgain = 3 * time.Second

// withVolume runs job on the volume's export, alone on the volume. A server that
// stops answering blocks the job and the lock of this one volume; the caller
// is let go when ctx ends or when the server turns out not to answer.
func (s *Store) withVolume(ctx context.Context, k key, get acquire, job func(context.Context, *share.Handle) error) error {
	// Who comes when the volume's lock is held by a job that hangs hears why, at
	// once or while waiting for it.
	if err := s.answers(ctx, k); err != nil {
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	s.jobs.Go(func() {
		unlock, err := s.locks.Acquire(waiting, k)
		if err != nil {
			done <- err
			return
		}
		defer unlock()
		release, err := s.calls.Acquire(waiting, k.export.Server)
		if err != nil {
			done <- err
			return
		}
		defer release()
		done <- unpanicked(ctx, func() error { return s.inShare(ctx, get, job) })
	})
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s: the server has not answered yet: %w", k, ctx.Err())
		case <-again.C:
			if err := s.answers(ctx, k); err != nil {
				return err
			}
		}
	}
}

// unpanicked makes an error of a panic: what the store does for a call it does in a
// goroutine, where the interceptor of panics does not see it.
func unpanicked(ctx context.Context, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			klog.FromContext(ctx).Error(err, "A call panicked", "stack", string(debug.Stack()))
		}
	}()
	return do()
}

// answers returns volume.ErrUnreachable when the volume's export, or one of others
// that the call needs, is mounted and its server does not answer.
func (s *Store) answers(ctx context.Context, k key, others ...volume.Export) error {
	for _, export := range append([]volume.Export{k.export}, others...) {
		if err := s.cfg.Shares.Answers(ctx, export); errors.Is(err, volume.ErrUnreachable) {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

// serverTick is the longest that a Linux server's clock stands still, at 100 Hz.
const serverTick = 10 * time.Millisecond

// alone is withVolume for a job that has its own goroutine, and goes on when the
// server comes back.
func (s *Store) alone(ctx context.Context, k key, get acquire, job func(context.Context, *share.Handle) error) error {
	unlock, err := s.locks.Acquire(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	return s.inShare(ctx, get, job)
}

func (s *Store) inShare(ctx context.Context, get acquire, job func(context.Context, *share.Handle) error) error {
	err := s.onMount(ctx, get, job)
	// Another controller has removed what was open, or the mount is a new one now.
	// The job begins anew, as a repeated call would: at once, and where others are
	// at the same names after a few ticks of the server's clock, between which an
	// NFSv3 client sees no change.
	for _, pause := range [...]time.Duration{0, serverTick, 3 * serverTick} {
		if !errors.Is(err, unix.ESTALE) {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		err = s.onMount(ctx, get, job)
	}
	return err
}

func (s *Store) onMount(ctx context.Context, get acquire, job func(context.Context, *share.Handle) error) error {
	h, err := get(ctx)
	if err != nil {
		return err
	}
	defer h.Release()
	return remountStale(h, explain(h.Root(), job(ctx, h)))
}

// remountStale makes the next use of the share mount it anew if this one found
// the mount stale, as after the export was made anew on the server, or what is
// open on it.
func remountStale(h *share.Handle, err error) error {
	if !errors.Is(err, unix.ESTALE) {
		return err
	}
	cat, ok := h.Kept().(*catalog.Catalog)
	if look(h.Root()) != nil || ok && cat.Check() != nil || ok && cat.Revalidate() != nil {
		h.Invalidate()
	}
	return fmt.Errorf("%w: %w", volume.ErrStale, err)
}

// withCatalog runs job with the export's catalog, which stays open with the
// mount.
func withCatalog(h *share.Handle, job func(*catalog.Catalog) error) error {
	kept, err := h.Keep(func(root *os.Root) (io.Closer, error) { return catalog.Open(root) })
	if err != nil {
		return err
	}
	cat, ok := kept.(*catalog.Catalog)
	if !ok {
		return fmt.Errorf("store: the mount keeps a %T", kept)
	}
	if err := cat.Check(); err != nil {
		return err
	}
	return job(cat)
}

// thisShare is the export mounted with these options.
func (s *Store) thisShare(export volume.Export, options []string) acquire {
	return func(ctx context.Context) (*share.Handle, error) {
		h, err := s.cfg.Shares.Acquire(ctx, export, options)
		if err == nil {
			s.known.mounted(export, options)
			s.reclaim.resume(export, options)
		}
		return h, err
	}
}

// anyShare is the export as it is mounted, or else with these options.
func (s *Store) anyShare(export volume.Export, options []string) acquire {
	return func(ctx context.Context) (*share.Handle, error) {
		h, err := s.cfg.Shares.AcquireAny(ctx, export, options)
		if err == nil {
			s.known.add(export, options)
			s.reclaim.resume(export, options)
		}
		return h, err
	}
}

// options are those the caller says, or else those that this process has mounted the
// export with for a class, which its records have too, or else the configured ones.
func (s *Store) options(export volume.Export, said []string) []string {
	if len(said) > 0 {
		return said
	}
	if worked := s.known.options(export); len(worked) > 0 {
		return worked
	}
	return s.cfg.MountOptions
}
