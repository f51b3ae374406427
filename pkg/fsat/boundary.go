package fsat

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Boundary returns the last directory on the way to subDir, which ends with subDir itself,
// where another file system begins; empty if there is none. Nothing can be renamed or
// linked across it. An NFS client sees one wherever the server has mounted a file system
// or, with NFSv4, exports a directory as a file system of its own. The way ends early at
// what is missing, closed to this process or not a directory.
func Boundary(export *os.Root, subDir string) (at string, err error) {
	if !filepath.IsLocal(subDir) {
		return "", &os.PathError{Op: "open", Path: subDir, Err: unix.EXDEV}
	}
	err = WithFD(export, func(fd int) error {
		at, err = boundary(fd, subDir)
		return err
	})
	return at, err
}

func boundary(export int, subDir string) (at string, err error) {
	st, err := Stat(export, ".")
	if err != nil {
		return "", err
	}
	dir := export
	leave := func() {
		if dir != export {
			_ = unix.Close(dir) // only read
		}
	}
	defer func() { leave() }()
	names := strings.Split(path.Clean(subDir), "/")
	for i, name := range names {
		next, err := openOnWay(dir, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			break
		}
		if err != nil {
			return "", err
		}
		leave()
		dir = next
		device := st.Dev
		if st, err = Stat(dir, name); err != nil {
			return "", err
		}
		if st.Dev != device {
			at = path.Join(names[:i+1]...)
		}
	}
	return at, nil
}

// openOnWay opens a directory. That mounts what the server has there, which lstat(2) does
// not, and asks the server whether the directory is still there, unless it is not readable.
func openOnWay(dir int, name string) (fd int, err error) {
	fd, err = Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrPermission) {
		fd, err = Open(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	return fd, err
}
