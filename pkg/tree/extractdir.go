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

type wayDir struct {
	name string       // from the tree on
	want *unix.Stat_t // nil leaves it as it was made
}

// goTo opens a directory of the tree, making what is missing, and follows no symlink
// that an earlier member may have put there. It leaves those that do not lead there.
func (x *extractor) goTo(name string) (*os.Root, error) {
	if err := x.leave(name); err != nil {
		return nil, err
	}
	known := len(x.way)
	return x.open(name, func(dir *os.Root, name string, depth int, made bool) error {
		if depth < known {
			return nil
		}
		next := wayDir{name: name}
		if made {
			x.progress.entries.Add(1)
		} else { // left before: it is to be then as it is now
			st, err := statRoot(dir)
			if err != nil {
				return err
			}
			next.want = &st
		}
		x.way = append(x.way, next)
		return nil
	})
}

// open opens a directory of the tree and calls visit for each one on the way.
func (x *extractor) open(name string, visit func(dir *os.Root, name string, depth int, made bool) error) (*os.Root, error) {
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
	dir, err := x.goTo(name)
	if err != nil {
		return err
	}
	dir.Close()
	x.way[len(x.way)-1].want = headerStat(h)
	return nil
}

// leave gives directories their attributes, other than those that lead to name; the
// empty name leads nowhere.
func (x *extractor) leave(name string) error {
	for len(x.way) > 0 {
		last := x.way[len(x.way)-1]
		if name != "" && (last.name == "." || strings.HasPrefix(name+"/", last.name+"/")) {
			return nil
		}
		x.way = x.way[:len(x.way)-1]
		if err := x.finish(last); err != nil {
			return fmt.Errorf("directory %s: %w", last.name, err)
		}
	}
	return nil
}

func (x *extractor) finish(d wayDir) error {
	if d.want == nil {
		return nil
	}
	dir, err := x.open(d.name, pass)
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

// pass is a visit that does nothing.
func pass(*os.Root, string, int, bool) error { return nil }
