// Package nfsmount mounts NFS exports with mount(2) and takes them away again
// with umount2(2), without mount.nfs. It is the only package that makes mount
// system calls, and the only one that knows mount options.
//
// Everything here may meet a server that is dead. Calls return when their
// context ends, at most one mount(2) per server is ever waiting, and nothing
// calls stat on a mount point except Usage and SetMode.
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
}

// Source is the name under which the mount appears in the mount table.
func (m Mount) Source() string { return m.Export.Source(m.SubDir) }

// Entry is one mount of the mount table.
type Entry struct {
	Target   string
	Source   string
	FSType   string
	ReadOnly bool
	// Root is the directory within the file system that is shown at Target;
	// "/" unless the entry is a bind mount of a part of another.
	Root string
	// Server is the address, with the port if it is not the usual one, that an
	// NFS mount talks to.
	Server string
}

// IsNFS tells NFS mounts from others.
func (e Entry) IsNFS() bool { return e.FSType == "nfs" || e.FSType == "nfs4" }

// Mounter is implemented by Kernel and by the fake in nfsmounttest; both pass
// the contract tests in nfsmounttest.
type Mounter interface {
	// Mount mounts, or leaves nothing behind. When ctx ends first and the mount
	// succeeds after that, it is undone.
	//
	// Errors: volume.ErrUnreachable, ErrShareNotFound, ErrAccessDenied,
	// ErrMountOptions, or what the system said.
	Mount(ctx context.Context, m Mount) error
	// Unmount takes away everything mounted at target; nothing mounted there, or
	// no such directory, is success. A mount that is in use or whose server is
	// dead is detached and goes when its last user does.
	Unmount(ctx context.Context, target string) error
	// Mounts lists the mount table of this process.
	Mounts(ctx context.Context) ([]Entry, error)
	// MountAt is the entry of the table that is seen at target, its last one there:
	// quicker than the whole table.
	MountAt(ctx context.Context, target string) (e Entry, mounted bool, err error)
	// Usage asks the server of an entry of the table how full the file system is
	// that the mount shows a part of. While a server owes an answer to an earlier
	// question it is not asked another one. Errors: volume.ErrStale when the mount
	// is of no more use, volume.ErrUnreachable when no answer comes,
	// volume.ErrAccessDenied.
	Usage(ctx context.Context, e Entry) (Usage, error)
	// SetMode gives the directory that an entry of the table shows a mode, unless it
	// has it. Errors: those of Usage, volume.ErrRefused.
	SetMode(ctx context.Context, e Entry, mode volume.Mode) error
}

// Usage of a file system: of the whole of it on the server, also where the mount
// shows one directory.
type Usage struct {
	Bytes, Inodes Amount
}

// Amount of something that there is a limited number of. Available is what is
// left for those without privileges, Total and Used may be 0 where the server's
// file system has no limit.
type Amount struct {
	Total, Used, Available int64
}
