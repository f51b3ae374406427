package fsat

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// An NFS client trusts its cache of a directory for up to a minute (acdirmax in nfs(5)),
// and another controller may have changed the directory since. Operations are decided by
// the server, and the client never answers from its cache that an entry is missing, as
// shares are mounted with lookupcache=positive. But a decision of the driver itself that
// depends on an existing entry needs a revalidation first. With NFSv3, even that only
// shows changes up to the last tick of the server's clock.

// RevalidateRoot is Revalidate for an os.Root. It is needed for the directory of the
// export, which stays open; opening the parents of a volume revalidates them.
func RevalidateRoot(dir *os.Root) error { return WithFD(dir, Revalidate) }

// Directory reports whether the directory exists. The client may answer from its cache.
//
// Errors: volume.ErrOwned for something else of that name.
func Directory(root *os.Root, subDir string) (there bool, info fs.FileInfo, err error) {
	info, err = LstatBelow(root, subDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil, nil
	case err != nil:
		return false, nil, err
	case !info.IsDir():
		return false, nil, fmt.Errorf("%w: %s is there and is not a directory", volume.ErrOwned, subDir)
	}
	return true, info, nil
}

// DirectoryNow is Directory that asks the server.
func DirectoryNow(root *os.Root, subDir string) (there bool, info fs.FileInfo, err error) {
	if err := RevalidateRoot(root); err != nil {
		return false, nil, err
	}
	return Directory(root, subDir)
}

// OpenDirectory opens a directory below root and follows no symlink.
func OpenDirectory(root *os.Root, subDir string) (*os.Root, error) {
	p, err := OpenPlace(root, subDir)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	dir, err := p.Enter()
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", subDir, err)
	}
	return dir, nil
}

// IgnoreNotExist returns nil for fs.ErrNotExist, and any other error unchanged.
func IgnoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// IsFull reports whether the disk or a quota is full.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
