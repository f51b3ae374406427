package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// parentMode of the directories that lead to a nested volume.
const parentMode = 0o755

// maxLostRaces is how often a directory is made again that another volume's
// delete, which prunes empty parents, took away.
const maxLostRaces = 64

// place is where a volume's directory is or is to be: the directory that holds
// it, and its name in there. The way to it has no symlink: one planted in a kept
// directory could lead into another volume.
type place struct {
	parent *os.Root
	name   string
	// at is the parent where somebody has it open already, or nil.
	at *os.File
	// close gives the parent back; for a directory of the export itself it does
	// nothing.
	close func()
}

// openPlace finds the place of subDir; fs.ErrNotExist if its parent is not there.
func openPlace(export *os.Root, subDir string) (place, error) {
	return walkPlace(export, subDir, false)
}

// makePlace makes the parents that are missing.
func makePlace(export *os.Root, subDir string) (place, error) {
	for range maxLostRaces {
		p, err := walkPlace(export, subDir, true)
		if !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
	}
	return place{}, fmt.Errorf("the directories above %s keep disappearing", subDir)
}

func walkPlace(export *os.Root, subDir string, mkdir bool) (place, error) {
	if err := volume.CheckBelow(subDir); err != nil { // never the export itself
		return place{}, err
	}
	p := place{parent: export, name: path.Base(subDir), close: func() {}}
	parents := strings.Split(subDir, "/")
	for i, name := range parents[:len(parents)-1] {
		next, err := enter(p.parent, name, mkdir)
		p.close()
		if err != nil {
			return place{}, fmt.Errorf("directory %s: %w", path.Join(parents[:i+1]...), err)
		}
		p.parent, p.close = next, func() { next.Close() }
	}
	return p, nil
}

// enter opens the directory name, making it if it is not there and shall be.
func enter(parent *os.Root, name string, mkdir bool) (*os.Root, error) {
	before, err := parent.Lstat(name)
	if mkdir && errors.Is(err, fs.ErrNotExist) {
		if err = parent.Mkdir(name, parentMode); err == nil || errors.Is(err, fs.ErrExist) {
			before, err = parent.Lstat(name)
		}
	}
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("%w: it is not a directory", volume.ErrOwned)
	}
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	after, err := dir.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%w: it was replaced while it was opened", volume.ErrOwned)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// lstat returns fs.ErrNotExist also when the way to the place is not there. What
// is there it may say by memory, see look.
func lstat(export *os.Root, subDir string) (fs.FileInfo, error) {
	p, err := openPlace(export, subDir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	return p.parent.Lstat(p.name)
}

// withFD runs do with a descriptor of the parent.
func (p place) withFD(do func(fd int) error) error {
	if p.at != nil {
		return do(int(p.at.Fd()))
	}
	return withFD(p.parent, do)
}

// withFD runs do with a descriptor of the directory.
func withFD(dir *os.Root, do func(fd int) error) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(do(int(f.Fd())), f.Close())
}

// rename moves the directory that is at from to a place of another directory. An
// empty one that is there already it puts out of the way, as rename(2) does.
func rename(from, to place) error {
	err := from.renameTo(to)
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	// Its .. changes, for which its owner must be allowed to write to it.
	mode, unlocked := from.unlock()
	if !unlocked {
		return err
	}
	at := from
	if err = from.renameTo(to); err == nil {
		at = to
	}
	// As it was, since it may be an archive. Whoever is killed before this leaves it
	// to its owner to lock it again.
	_ = at.chmod(mode)
	return err
}

func (p place) renameTo(to place) error {
	return p.withFD(func(src int) error {
		return to.withFD(func(dst int) error {
			if err := unix.Renameat(src, p.name, dst, to.name); err != nil {
				return &os.LinkError{Op: "rename", Old: p.name, New: to.name, Err: err}
			}
			return nil
		})
	})
}

// unlock lets the directory's owner use it, unless that was so before, and tells
// what its mode was.
func (p place) unlock() (mode volume.Mode, unlocked bool) {
	const ownerAll = 0o700
	var st unix.Stat_t
	err := p.withFD(func(fd int) error { return unix.Fstatat(fd, p.name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&ownerAll == ownerAll {
		return 0, false
	}
	mode = volume.Mode(st.Mode & 0o7777)
	return mode, p.chmod(mode|ownerAll) == nil
}

// rmdir removes an empty directory and, unlike os.Root.Remove, nothing else.
func (p place) rmdir() error {
	return p.withFD(func(fd int) error {
		if err := unix.Unlinkat(fd, p.name, unix.AT_REMOVEDIR); err != nil {
			return &fs.PathError{Op: "rmdir", Path: p.name, Err: err}
		}
		return nil
	})
}

// chmod changes the mode of a directory and, unlike os.Root.Chmod, of nothing
// that a symlink leads to. It needs no permission to enter the directory.
func (p place) chmod(mode volume.Mode) error {
	return p.withFD(func(parent int) error {
		fd, err := unix.Openat(parent, p.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			// fchmod(2) takes no O_PATH descriptor, and fchmodat2(2) is of Linux 6.6.
			err = errors.Join(unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), uint32(mode)), unix.Close(fd))
		}
		if err != nil {
			return &fs.PathError{Op: "chmod " + mode.String(), Path: p.name, Err: err}
		}
		return nil
	})
}

// prune removes the directories that led to subDir, as far as they are empty.
// That one is not, or that somebody else was faster, is no error.
func prune(export *os.Root, subDir string) error {
	for dir := path.Dir(subDir); dir != "."; dir = path.Dir(dir) {
		p, err := openPlace(export, dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = p.rmdir()
		p.close()
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrPermission):
			return nil
		default:
			return err
		}
	}
	return nil
}
