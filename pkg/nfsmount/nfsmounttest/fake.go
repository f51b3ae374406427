// Package nfsmounttest has a mounter without NFS, for tests that need neither
// root nor a server, and the contract tests that it and the kernel's pass.
package nfsmounttest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Fake shows local directories as exports. A mounted target is a symlink to the
// directory "on the server", so that its content is there for any program.
type Fake struct {
	mu      sync.Mutex
	exports map[volume.Export]string
	hanging map[string]chan struct{} // by server, closed when it answers again
	table   []nfsmount.Entry
	mounts  int
}

var _ nfsmount.Mounter = (*Fake)(nil)

// NewFake returns a mounter with no exports: every server is unreachable.
func NewFake() *Fake {
	return &Fake{exports: map[volume.Export]string{}, hanging: map[string]chan struct{}{}}
}

// AddExport makes a server offer a local directory.
func (f *Fake) AddExport(e volume.Export, dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exports[e] = dir
}

// Hang makes a server take connections without answering until release is called.
func (f *Fake) Hang(server string) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hang := make(chan struct{})
	f.hanging[server] = hang
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.hanging, server)
		close(hang)
	})
}

// MountCalls counts the mounts made so far.
func (f *Fake) MountCalls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mounts
}

// Mount implements nfsmount.Mounter.
func (f *Fake) Mount(ctx context.Context, m nfsmount.Mount) error {
	err := f.wait(ctx, m.Export.Server)
	if err == nil {
		err = f.mount(m)
	}
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", m.Source(), m.Target, err)
	}
	return nil
}

func (f *Fake) wait(ctx context.Context, server string) error {
	f.mu.Lock()
	hang := f.hanging[server]
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", volume.ErrUnreachable, err)
	}
	return nil
}

func (f *Fake) mount(m nfsmount.Mount) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(slices.Collect(maps.Keys(f.exports)), func(e volume.Export) bool { return e.Server == m.Export.Server }) {
		return fmt.Errorf("%w: no server %s", volume.ErrUnreachable, m.Export.Server)
	}
	dir, err := f.serverDir(m)
	if err != nil {
		return err
	}
	if f.find(m.Target) >= 0 {
		return fmt.Errorf("already mounted: %w", fs.ErrExist)
	}
	// Fails unless the target is an empty directory, which is all a mount may hide here.
	if err := os.Remove(m.Target); err != nil {
		return err
	}
	if err := os.Symlink(dir, m.Target); err != nil {
		return err
	}
	f.mounts++
	f.table = append(f.table, nfsmount.Entry{
		Target: m.Target, Source: m.Source(), FSType: "nfs4", ReadOnly: m.Options.ReadOnly(), Root: "/",
		Server: m.Export.Server,
	})
	return nil
}

func (f *Fake) serverDir(m nfsmount.Mount) (string, error) {
	base, ok := f.exports[m.Export]
	if !ok {
		return "", fmt.Errorf("%w: %s", volume.ErrShareNotFound, m.Export)
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return "", fmt.Errorf("%w: %w", volume.ErrShareNotFound, err)
	}
	defer root.Close()
	info, err := root.Stat(filepath.Join(".", m.SubDir))
	if err != nil || !info.IsDir() {
		return "", fmt.Errorf("%w: %s", volume.ErrShareNotFound, m.Source())
	}
	return filepath.Join(base, m.SubDir), nil
}

func (f *Fake) find(target string) int {
	return slices.IndexFunc(f.table, func(e nfsmount.Entry) bool { return e.Target == target })
}

// Unmount implements nfsmount.Mounter.
func (f *Fake) Unmount(ctx context.Context, target string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.find(target)
	if at < 0 {
		return nil
	}
	if err := os.Remove(target); err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	f.table = slices.Delete(f.table, at, at+1)
	if err := os.Mkdir(target, 0o750); err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

// Mounts implements nfsmount.Mounter.
func (f *Fake) Mounts(context.Context) ([]nfsmount.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.table), nil
}

// MountAt implements nfsmount.Mounter.
func (f *Fake) MountAt(_ context.Context, target string) (nfsmount.Entry, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.find(target); at >= 0 {
		return f.table[at], true, nil
	}
	return nfsmount.Entry{}, false, nil
}

// check finds a mount stale when its directory is gone from the server.
func (f *Fake) check(e nfsmount.Entry) error {
	f.mu.Lock()
	_, hangs := f.hanging[e.Server]
	f.mu.Unlock()
	if hangs {
		return fmt.Errorf("check %s: %w: %s is hanging", e.Target, volume.ErrUnreachable, e.Server)
	}
	if _, err := os.Stat(e.Target); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("check %s: %w", e.Target, volume.ErrStale)
	}
	return nil
}

// SetMode implements nfsmount.Mounter.
func (f *Fake) SetMode(_ context.Context, e nfsmount.Entry, mode volume.Mode) error {
	if err := f.check(e); err != nil {
		return err
	}
	return os.Chmod(e.Target, mode.FileMode())
}

// Usage implements nfsmount.Mounter with the usage of the local file system.
func (f *Fake) Usage(_ context.Context, e nfsmount.Entry) (nfsmount.Usage, error) {
	if err := f.check(e); err != nil {
		return nfsmount.Usage{}, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(e.Target, &st); err != nil {
		return nfsmount.Usage{}, err
	}
	return nfsmount.UsageOf(st), nil
}
