// Package nfsmount mounts NFS exports with mount(2) and unmounts them with umount2(2),
// without mount.nfs. It is the only package that makes mount system calls, and the
// only one that knows mount options.
//
// Any call may meet a dead server. Calls return when their context ends, at most one
// mount(2) per server waits at any time, and nothing but Usage and SetMode accesses a
// mount point.
package nfsmount

import (
	"context"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Mount says what to mount where.
type Mount struct {
	Export volume.Export
	// SubDir below the export, empty for the export itself.
	SubDir string
	// Target is an existing directory, absolute and free of symlinks.
	Target  string
	Options Options
	// LocalLocks allows locks of NFSv3 that other nodes do not see, for a mount on which
	// nothing locks files.
	LocalLocks bool
}

// Source is the name under which the mount appears in the mount table.
func (m Mount) Source() string { return m.Export.Source(m.SubDir) }

// Entry is one mount of the mount table.
type Entry struct {
	Target   string
	Source   string
	FSType   string
	ReadOnly bool
	// Root is the directory of the file system that is visible at Target; "/" unless
	// the entry is a bind mount of a subdirectory.
	Root string
	// Server is the address of an NFS mount's server, with the port unless it is 2049.
	Server string
}

// IsNFS tells whether the entry is an NFS mount.
func (e Entry) IsNFS() bool { return e.FSType == "nfs" || e.FSType == "nfs4" }

// Mounter is implemented by Kernel and by the fake in nfsmounttest; both pass
// the contract tests in nfsmounttest.
type Mounter interface {
	// Mount mounts, or leaves nothing behind. A mount that completes after ctx has
	// ended is undone.
	//
	// Errors: volume.ErrUnreachable, ErrShareNotFound, ErrAccessDenied,
	// ErrMountOptions, ErrUnsupported, or any other error of mount(2).
	Mount(ctx context.Context, m Mount) error
	// Unmount unmounts everything at target; it succeeds if nothing is mounted there
	// or the directory does not exist. A mount that is in use, or whose server is
	// dead, is detached and disappears with its last user.
	Unmount(ctx context.Context, target string) error
	// Mounts lists the mount table of this process.
	Mounts(ctx context.Context) ([]Entry, error)
	// MountAt is the topmost mount at target. It is faster than Mounts.
	MountAt(ctx context.Context, target string) (e Entry, mounted bool, err error)
	// Usage asks the server how full the file system behind an entry of the mount table
	// is. A server that has not answered an earlier question is not asked again.
	// Errors: volume.ErrStale when the mount has become unusable,
	// volume.ErrUnreachable when the server does not answer, volume.ErrAccessDenied.
	Usage(ctx context.Context, e Entry) (Usage, error)
	// SetMode changes the mode of the directory behind an entry of the mount table
	// unless it has it already. Errors: those of Usage, volume.ErrRefused.
	SetMode(ctx context.Context, e Entry, mode volume.Mode) error
}

// Usage of a whole file system on the server, even if the mount shows only one of its
// directories.
type Usage struct {
	Bytes, Inodes Amount
}

// Amount of bytes or inodes. Available is what is left for unprivileged users. Total
// and Used may be 0 where the server's file system has no limit.
type Amount struct {
	Total, Used, Available int64
}
