// Package share keeps exports mounted for the controller: one mount per export and set
// of mount options, shared by all calls and unmounted when idle.
package share

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Config of a Cache.
type Config struct {
	Mounter nfsmount.Mounter
	// Dir is where the mount points are made. It belongs to this cache alone: whatever
	// is mounted there at the start is unmounted.
	Dir string
	// IdleTimeout is how long a mount is kept after its last use.
	IdleTimeout time.Duration
	// MountWait is how long one call waits for a mount in progress;
	// DefaultMountWait when 0.
	MountWait time.Duration
}

// DefaultMountWait is less than the default timeout of the external-provisioner, ten
// seconds, so that its calls fail with the name of the server.
const DefaultMountWait = 8 * time.Second

// Cache of mounted exports.
type Cache struct {
	cfg  Config
	ctx  context.Context // ends with Close, as do mounts in progress
	stop context.CancelFunc
	wg   sync.WaitGroup // counts entries until they are unmounted

	mu      sync.Mutex
	closed  bool
	entries map[string]*entry // by export and options
}

// New checks the configuration, makes the directory and unmounts what a previous
// process left mounted there.
func New(ctx context.Context, cfg Config) (*Cache, error) {
	if cfg.Mounter == nil || !filepath.IsAbs(cfg.Dir) || cfg.IdleTimeout <= 0 {
		return nil, errors.New("share: a mounter, an absolute directory and a positive idle timeout are needed")
	}
	cfg.MountWait = cmp.Or(cfg.MountWait, DefaultMountWait)
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("share: %w", err)
	}
	// Paths in the mount table have no symlinks.
	dir, err := filepath.EvalSymlinks(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("share: %w", err)
	}
	cfg.Dir = dir
	if err := clean(ctx, cfg.Mounter, dir); err != nil {
		return nil, fmt.Errorf("share: clean %s: %w", dir, err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	return &Cache{cfg: cfg, ctx: life, stop: stop, entries: map[string]*entry{}}, nil
}

// Dir is where the mount points are, without symlinks.
func (c *Cache) Dir() string { return c.cfg.Dir }

// clean unmounts everything below dir and removes the empty mount points. It removes
// no directory with content: after a failed unmount that would be user data.
func clean(ctx context.Context, m nfsmount.Mounter, dir string) error {
	table, err := m.Mounts(ctx)
	if err != nil {
		return err
	}
	for _, e := range table {
		if strings.HasPrefix(e.Target, dir+"/") {
			klog.FromContext(ctx).Info("Unmounting an export that a previous process left mounted", logkeys.Target, e.Target, logkeys.Source, e.Source)
			if err := m.Unmount(ctx, e.Target); err != nil {
				return err
			}
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, d := range left {
		if d.IsDir() && strings.HasPrefix(d.Name(), dirPrefix) {
			if err := os.Remove(filepath.Join(dir, d.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownOptions override those of the caller. Nothing on the controller's mounts is
// executed or opened as a device, and the controller has to write even where pods may
// not. Negative lookups must not be cached: another controller may just have created
// the name.
func ownOptions() []string {
	return []string{"rw", "nosuid", "nodev", "noexec", "lookupcache=positive"}
}

// Acquire returns the export mounted with these options; it mounts the export if
// necessary and remounts it if the mount is stale. The server has just answered. The
// handle must be released. Errors: those of nfsmount.Mounter, and
// volume.ErrUnreachable when the mount takes long; it continues for the next caller.
func (c *Cache) Acquire(ctx context.Context, export volume.Export, options []string) (*Handle, error) {
	return c.acquire(ctx, export, options, false)
}

// AcquireAny is Acquire for callers who do not know the options that the export was
// used with: any existing mount of it will do.
func (c *Cache) AcquireAny(ctx context.Context, export volume.Export, fallback []string) (*Handle, error) {
	return c.acquire(ctx, export, fallback, true)
}

func (c *Cache) acquire(ctx context.Context, export volume.Export, options []string, anyWillDo bool) (*Handle, error) {
	opts, err := nfsmount.ParseOptions(slices.Concat(options, ownOptions()))
	if err != nil {
		return nil, err
	}
	h, err := c.use(ctx, export, opts, anyWillDo)
	if errors.Is(err, volume.ErrStale) {
		// use has invalidated the mount, so this makes a new one.
		h, err = c.use(ctx, export, opts, anyWillDo)
	}
	return h, err
}

func (c *Cache) use(ctx context.Context, export volume.Export, opts nfsmount.Options, anyWillDo bool) (*Handle, error) {
	e, err := c.join(export, opts, anyWillDo)
	if err != nil {
		return nil, err
	}
	h := &Handle{cache: c, entry: e}
	if err = c.wait(ctx, e); err == nil {
		err = c.ask(ctx, e)
	}
	if err != nil {
		if errors.Is(err, volume.ErrStale) {
			h.Invalidate()
		}
		h.Release()
		return nil, err
	}
	return h, nil
}

// wait for the mount to be ready.
func (c *Cache) wait(ctx context.Context, e *entry) error {
	select {
	case <-e.ready:
		return e.err
	default:
	}
	timer := time.NewTimer(c.cfg.MountWait)
	defer timer.Stop()
	select {
	case <-e.ready:
		return e.err
	case <-timer.C:
		return fmt.Errorf("%s is still being mounted: %w within %s", e.export, volume.ErrUnreachable, c.cfg.MountWait)
	case <-ctx.Done():
		return fmt.Errorf("%s is still being mounted: %w: %w", e.export, volume.ErrUnreachable, ctx.Err())
	}
}

// Close unmounts everything. Until ctx ends it waits for handles that are still in use
// and for mounts in progress.
func (c *Cache) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	for _, e := range c.entries {
		c.forget(e)
	}
	c.mu.Unlock()
	c.stop()

	done := make(chan struct{})
	go func() {
		c.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("share: mounts are still in use: %w", ctx.Err())
	}
}
