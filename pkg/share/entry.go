package share

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const dirPrefix = "share-"

var errClosed = errors.New("share: closed")

// entry is one mount, from before it is made until after it is unmounted.
type entry struct {
	key    string
	export volume.Export
	opts   nfsmount.Options

	ready chan struct{} // closed when the mount has succeeded or failed
	dir   string        // set before ready is closed, like root and err
	root  *os.Root
	err   error
	table nfsmount.Entry // in the mount table, once ready

	keeping sync.Mutex
	kept    io.Closer // closed before root is

	// Guarded by Cache.mu.
	refs      int
	forgotten bool // no longer in Cache.entries: unmounted with its last user
	idle      *time.Timer
	last      answer
}

// Handle is the use of one mount.
type Handle struct {
	cache *Cache
	entry *entry
	once  sync.Once
}

// Root is the export's root directory. It must not be closed, or used after Release.
func (h *Handle) Root() *os.Root { return h.entry.root }

// Keep opens something on the mount's root once and returns it for as long as the mount
// exists. It is closed before the mount is unmounted.
func (h *Handle) Keep(open func(*os.Root) (io.Closer, error)) (io.Closer, error) {
	e := h.entry
	e.keeping.Lock()
	defer e.keeping.Unlock()
	if e.kept == nil {
		kept, err := open(e.root)
		if err != nil {
			return nil, err
		}
		e.kept = kept
	}
	return e.kept, nil
}

// Kept is what Keep opened, or nil.
func (h *Handle) Kept() io.Closer {
	h.entry.keeping.Lock()
	defer h.entry.keeping.Unlock()
	return h.entry.kept
}

// Release ends the use. Further calls do nothing.
func (h *Handle) Release() {
	h.once.Do(func() { h.cache.leave(h.entry) })
}

// Invalidate makes the next Acquire remount the export, because this mount turned out
// to be stale. The handle must still be released.
func (h *Handle) Invalidate() {
	h.cache.mu.Lock()
	defer h.cache.mu.Unlock()
	h.cache.forget(h.entry)
}

// join finds or starts the mount and adds the caller as a user.
func (c *Cache) join(export volume.Export, opts nfsmount.Options, anyWillDo bool) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	key := export.String() + " " + opts.String()
	e := c.entries[key]
	if e == nil && anyWillDo {
		e = c.mountedOf(export)
	}
	if e == nil {
		e = &entry{key: key, export: export, opts: opts, ready: make(chan struct{})}
		c.entries[key] = e
		c.wg.Add(1)
		// The mount belongs to the cache, not to the first caller: it serves the next one
		// even if this one gives up.
		go c.mount(e)
	}
	e.refs++
	if e.idle != nil {
		e.idle.Stop()
		e.idle = nil
	}
	return e, nil
}

func (c *Cache) mountedOf(export volume.Export) *entry {
	for _, e := range c.entries {
		if e.export != export {
			continue
		}
		select {
		case <-e.ready:
			return e // failed ones are not in the map
		default:
		}
	}
	return nil
}

// leave removes a user.
func (c *Cache) leave(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.refs--; e.refs > 0 {
		return
	}
	if e.forgotten {
		c.dismantle(e)
		return
	}
	e.idle = time.AfterFunc(c.cfg.IdleTimeout, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.refs == 0 {
			c.forget(e)
		}
	})
}

// forget removes the entry from the map. c.mu must be held.
func (c *Cache) forget(e *entry) {
	if e.forgotten {
		return
	}
	e.forgotten = true
	delete(c.entries, e.key)
	if e.idle != nil {
		e.idle.Stop()
	}
	if e.refs == 0 {
		c.dismantle(e)
	}
}

// dismantle unmounts an entry that is no longer in the map. c.mu must be held.
func (c *Cache) dismantle(e *entry) {
	go func() {
		defer c.wg.Done()
		<-e.ready
		if e.err == nil {
			c.unmount(e)
		}
	}()
}

// mount makes the mount and opens it. Both can block on the server.
func (c *Cache) mount(e *entry) {
	defer close(e.ready)
	if e.err = c.open(e); e.err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forget(e)
	}
}

func (c *Cache) open(e *entry) error {
	dir, err := os.MkdirTemp(c.cfg.Dir, dirPrefix)
	if err != nil {
		return err
	}
	if err := c.cfg.Mounter.Mount(c.ctx, nfsmount.Mount{Export: e.export, Target: dir, Options: e.opts, LocalLocks: true}); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	e.dir, e.table = dir, c.inTable(dir)
	if e.root, err = os.OpenRoot(dir); err != nil {
		c.unmount(e)
		return err
	}
	return nil
}

// inTable finds the mount at dir. Without it Usage does not know the server, and an
// answer counts for this mount alone.
func (c *Cache) inTable(dir string) nfsmount.Entry {
	e, mounted, err := c.cfg.Mounter.MountAt(c.ctx, dir)
	if err != nil {
		klog.FromContext(c.ctx).Error(err, "Failed to look up an export in the mount table", logkeys.Target, dir)
	}
	if !mounted {
		return nfsmount.Entry{Target: dir}
	}
	return e
}

func (c *Cache) unmount(e *entry) {
	ctx := context.WithoutCancel(c.ctx)
	var err error
	if e.kept != nil {
		err = e.kept.Close()
	}
	if e.root != nil {
		err = errors.Join(err, e.root.Close())
	}
	if err = errors.Join(err, c.cfg.Mounter.Unmount(ctx, e.dir), os.Remove(e.dir)); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to unmount an export", logkeys.Source, e.export.String(), logkeys.Target, e.dir)
	}
}
