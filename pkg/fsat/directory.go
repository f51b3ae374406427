package fsat

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// An NFS client believes for up to a minute what it has once seen in a directory
// (acdirmax in nfs(5)), and another controller may have changed it since. What a call
// asks the server to do, the server decides by what is there; that nothing is there the
// share's mount never says by memory (lookupcache=positive). What a call decides by
// itself because something is there, it must revalidate first. With NFSv3 even that
// shows only what has changed since the last tick of the server's clock.

// RevalidateRoot makes the kernel ask the server about the directory, so that what is
// looked up in it next is what is there. Directories on the way to a volume are opened,
// which does the same; the export's own is open all the time.
func RevalidateRoot(dir *os.Root) error { return WithFD(dir, Revalidate) }

// Directory tells whether the directory is there, as far as the client remembers.
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

// DirectoryNow is Directory by what the server says.
func DirectoryNow(root *os.Root, subDir string) (there bool, info fs.FileInfo, err error) {
	if err := RevalidateRoot(root); err != nil {
		return false, nil, err
	}
	return Directory(root, subDir)
}

// OpenDirectory opens a directory below root without following a symlink on the way.
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

// IgnoreNotExist returns nil for fs.ErrNotExist, and other errors as they are.
func IgnoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// IsFull tells whether the disk, or what somebody may use of it, is full.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
