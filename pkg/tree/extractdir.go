package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

type openDir struct {
	name string       // below the tree
	want *unix.Stat_t // nil leaves its attributes alone
}

// enterDir opens a directory of the tree and creates missing ones. It follows no symlink
// that an earlier member may have created. Directories that do not lead there are
// finished.
func (x *extractor) enterDir(name string) (*os.Root, error) {
	if err := x.finishDirs(name); err != nil {
		return nil, err
	}
	known := len(x.open)
	return x.walkTo(name, func(dir *os.Root, name string, depth int, made bool) error {
		if depth < known {
			return nil
		}
		next := openDir{name: name}
		if made {
			x.progress.entries.Add(1)
		} else { // finished before: it keeps its attributes
			st, err := statRoot(dir)
			if err != nil {
				return err
			}
			next.want = &st
		}
		x.open = append(x.open, next)
		return nil
	})
}

// walkTo opens a directory of the tree and calls visit for it and its parents.
func (x *extractor) walkTo(name string, visit func(dir *os.Root, name string, depth int, made bool) error) (*os.Root, error) {
	dir, err := x.to.OpenRoot(".")
	if err != nil || name == "." {
		return dir, err
	}
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		next, made, err := enterOrMake(dir, part)
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir, at = next, path.Join(at, part)
		if err := visit(dir, at, strings.Count(at, "/")+1, made); err != nil {
			dir.Close()
			return nil, err
		}
	}
	return dir, nil
}

func enterOrMake(dir *os.Root, name string) (next *os.Root, made bool, err error) {
	err = dir.Mkdir(name, 0o700)
	if made = err == nil; err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, false, err
	}
	next, err = fsat.Enter(dir, name)
	if errors.Is(err, volume.ErrOwned) {
		err = fmt.Errorf("%w: %s is not a directory", errUnsafe, name)
	}
	return next, made, err
}

func statRoot(dir *os.Root) (st unix.Stat_t, err error) {
	err = fsat.WithFD(dir, func(fd int) error {
		st, err = fsat.Stat(fd, dir.Name())
		return err
	})
	return st, err
}

func (x *extractor) directory(name string, h *tar.Header) error {
	dir, err := x.enterDir(name)
	if err != nil {
		return err
	}
	dir.Close()
	x.open[len(x.open)-1].want = headerStat(h)
	return nil
}

// finishDirs sets the attributes of the open directories that do not lead to name; with
// the empty name, of all.
func (x *extractor) finishDirs(name string) error {
	for len(x.open) > 0 {
		last := x.open[len(x.open)-1]
		if name != "" && (last.name == "." || strings.HasPrefix(name+"/", last.name+"/")) {
			return nil
		}
		x.open = x.open[:len(x.open)-1]
		if err := x.finish(last); err != nil {
			return fmt.Errorf("directory %s: %w", last.name, err)
		}
	}
	return nil
}

func (x *extractor) finish(d openDir) error {
	if d.want == nil {
		return nil
	}
	dir, err := x.walkTo(d.name, noVisit)
	if err != nil {
		return err
	}
	defer dir.Close()
	return fsat.WithFD(dir, func(fd int) error {
		made, err := fsat.Stat(fd, d.name)
		if err != nil {
			return err
		}
		return setAttributes(fd, fd, ".", &made, d.want)
	})
}

// noVisit is a visit that does nothing.
func noVisit(*os.Root, string, int, bool) error { return nil }
