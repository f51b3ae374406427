package fsat

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

// parentMode is the mode of the directories that lead to a nested volume.
const parentMode = 0o755

// MaxLostRaces is how often a directory is made again after another volume's
// delete, which prunes empty parents, has removed it.
const MaxLostRaces = 64

// Place is where a directory is or will be: the directory that holds it, and its
// name in there. The path to it has no symlink: one planted in a kept directory
// could lead into another volume.
type Place struct {
	Parent *os.Root
	Name   string
	// At is the parent where the caller has it open already, or nil.
	At *os.File

	owned bool
}

// NewPlace returns a place that owns its parent: Close closes it.
func NewPlace(parent *os.Root, name string) Place {
	return Place{Parent: parent, Name: name, owned: true}
}

// OpenPlace returns the place of subDir, or fs.ErrNotExist if its parent is missing.
// The caller closes it.
func OpenPlace(export *os.Root, subDir string) (Place, error) {
	return walk(export, subDir, Enter)
}

// MakePlace is OpenPlace that makes missing parents.
func MakePlace(export *os.Root, subDir string) (p Place, err error) {
	err = whilePruned(subDir, func() (err error) {
		p, err = walk(export, subDir, enterNew)
		return err
	})
	return p, err
}

// InNewPlace makes missing parents and calls do with the place of subDir. It does so
// again when do returns fs.ErrNotExist: the parents were pruned meanwhile.
func InNewPlace(export *os.Root, subDir string, do func(Place) error) error {
	return whilePruned(subDir, func() error {
		p, err := walk(export, subDir, enterNew)
		if err != nil {
			return err
		}
		defer p.Close()
		return do(p)
	})
}

func whilePruned(subDir string, try func() error) error {
	for range MaxLostRaces {
		if err := try(); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("the directories above %s keep disappearing", subDir)
}

func walk(export *os.Root, subDir string, enter func(*os.Root, string) (*os.Root, error)) (Place, error) {
	if err := volume.CheckBelow(subDir); err != nil { // never the export itself
		return Place{}, err
	}
	p := Place{Parent: export, Name: path.Base(subDir)}
	parents := strings.Split(subDir, "/")
	for i, name := range parents[:len(parents)-1] {
		next, err := enter(p.Parent, name)
		p.Close()
		if err != nil {
			return Place{}, fmt.Errorf("directory %s: %w", path.Join(parents[:i+1]...), err)
		}
		p.Parent, p.owned = next, true
	}
	return p, nil
}

// Close closes the parent if the place owns it. The export's own directory is
// never owned.
func (p Place) Close() {
	if p.owned {
		p.Parent.Close()
	}
}

// Enter opens the directory, see Enter.
func (p Place) Enter() (*os.Root, error) { return Enter(p.Parent, p.Name) }

// enterNew is Enter that makes a missing directory.
func enterNew(parent *os.Root, name string) (*os.Root, error) {
	dir, err := Enter(parent, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	if err := parent.Mkdir(name, parentMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return Enter(parent, name)
}

// Enter opens a directory of another one. volume.ErrOwned if it is not a directory,
// or was replaced while it was opened.
func Enter(parent *os.Root, name string) (*os.Root, error) {
	before, err := parent.Lstat(name)
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
		// Opening it may have mounted another file system of the server there.
		before, err = parent.Lstat(name)
	}
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%w: it was replaced while it was opened", volume.ErrOwned)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// LstatBelow returns what is at subDir, or fs.ErrNotExist also if one of its parents
// is missing. The client may answer from its cache; Revalidate the parent first
// where that matters.
func LstatBelow(export *os.Root, subDir string) (fs.FileInfo, error) {
	p, err := OpenPlace(export, subDir)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Parent.Lstat(p.Name)
}

// withFD runs do with a descriptor of the parent.
func (p Place) withFD(do func(fd int) error) error {
	if p.At != nil {
		return do(int(p.At.Fd()))
	}
	return WithFD(p.Parent, do)
}

// Rename moves the directory to another place. An empty directory that is there
// already is replaced, as by rename(2).
func (p Place) Rename(to Place) error {
	err := p.rename(to)
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	// The rename changes the directory's "..", for which its owner needs write
	// permission.
	mode, unlocked := p.Unlock()
	if !unlocked {
		return err
	}
	at := p
	if err = p.rename(to); err == nil {
		at = to
	}
	// Restore the mode, as the directory may be an archive. After a crash before this
	// line, its owner has to lock it again.
	_ = at.Chmod(mode)
	return err
}

func (p Place) rename(to Place) error {
	return p.withFD(func(src int) error {
		return to.withFD(func(dst int) error { return Rename(src, p.Name, dst, to.Name) })
	})
}

// Unlock gives the directory's owner all permissions. It returns the mode before,
// and false if the owner had them already.
func (p Place) Unlock() (mode volume.Mode, unlocked bool) {
	const ownerAll = 0o700
	var st unix.Stat_t
	err := p.withFD(func(fd int) (err error) { st, err = Lstat(fd, p.Name); return err })
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&ownerAll == ownerAll {
		return 0, false
	}
	mode = volume.Mode(st.Mode & 0o7777)
	return mode, p.Chmod(mode|ownerAll) == nil
}

// Rmdir removes an empty directory and nothing else.
func (p Place) Rmdir() error {
	return p.withFD(func(fd int) error { return Rmdir(fd, p.Name) })
}

// Chmod changes the mode of a directory and, unlike os.Root.Chmod, of nothing that
// a symlink leads to. It needs no permission to enter the directory.
func (p Place) Chmod(mode volume.Mode) error {
	return p.withFD(func(parent int) error {
		fd, err := Open(parent, p.Name, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		return errors.Join(Chmod(fd, p.Name, uint32(mode)), unix.Close(fd))
	})
}

// Prune removes the empty directories that lead to subDir, from the last one up. A
// directory that is not empty, or that another process has removed first, is not
// an error.
func Prune(export *os.Root, subDir string) error {
	return PruneWith(path.Dir(subDir), func(dir string) (gone bool, err error) {
		p, err := OpenPlace(export, dir)
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		err = p.Rmdir()
		p.Close()
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
			return true, nil
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrPermission):
			return false, nil
		}
		return false, err
	})
}

// PruneWith calls rmdir for a directory and those that lead to it, until one is not
// gone after that.
func PruneWith(dir string, rmdir func(dir string) (gone bool, err error)) error {
	for ; dir != "."; dir = path.Dir(dir) {
		if gone, err := rmdir(dir); err != nil || !gone {
			return err
		}
	}
	return nil
}
