package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/legacy"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// An existing directory that belongs to no volume is adopted, as both predecessors do.
// The author of a claim may choose the directory by the claim's name. So data known to
// belong to others is never adopted: archives of deleted volumes, whose names are easy to
// guess, and snapshots of csi-driver-nfs.

const (
	// maxDirs limits the directories that checkAdoptable reads: those that contain only
	// directories, as all parents of volumes and archives do.
	maxDirs = 1000
	// maxNames limits the names that it reads in all of them.
	maxNames = 1 << 16
)

// ArchivePrefix starts the names of archives, as in csi-driver-nfs.
const ArchivePrefix = "archived-"

// checkAdoptable returns volume.ErrNotAdopted if the volume may not adopt the directory.
func (c *Claim) checkAdoptable(ctx context.Context) error {
	subDir := c.want.SubDir
	if c.want.ReusedFrom != "" {
		return nil // it was the same claim's
	}
	if c.req.Params.NoAdopt {
		return fmt.Errorf("%w: %s: the class has %s: \"false\"; move the directory away on the server, or choose another %s",
			volume.ErrNotAdopted, subDir, volume.KeyAdopt, volume.KeySubDir)
	}
	for name := range strings.SplitSeq(subDir, "/") {
		if isArchive(name) {
			return fmt.Errorf("%w: %s: a directory named %s* is the archive of a deleted volume; "+
				"rename it on the server to let this volume adopt it, or choose another name", volume.ErrNotAdopted, subDir, ArchivePrefix)
		}
	}
	found, err := findForeign(ctx, c.Root, subDir)
	if err != nil || found == "" {
		return err
	}
	return fmt.Errorf("%w: %s holds %s; move that elsewhere on the server, or choose another %s",
		volume.ErrNotAdopted, subDir, found, volume.KeySubDir)
}

func isArchive(name string) bool { return strings.HasPrefix(name, ArchivePrefix) }

// recheckAdoptable is checkAdoptable for a directory that appeared after the record was
// written. An empty one may have been created by another controller for this record, and
// is no archive.
func (c *Claim) recheckAdoptable(ctx context.Context) error {
	empty, err := isEmpty(c.Root, c.rec.SubDir)
	if err != nil || empty {
		return err
	}
	if err := c.checkAdoptable(ctx); err != nil {
		return errors.Join(err, forget(c.Session, c.rec))
	}
	return nil
}

// isEmpty returns false for a directory that this process may not read.
func isEmpty(export *os.Root, subDir string) (empty bool, err error) {
	err = inDirectory(export, subDir, func(fd int) error {
		list, err := (&search{top: fd, names: 1}).list(".")
		empty = err == nil && len(list) == 0
		return err
	})
	return empty, err
}

// inDirectory calls do with a descriptor of the directory, unless this process may not
// read it.
func inDirectory(export *os.Root, subDir string, do func(fd int) error) error {
	dir, err := fsat.OpenDirectory(export, subDir)
	if err == nil {
		defer dir.Close()
		err = fsat.WithFD(dir, do)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// findForeign describes data of others in the directory; empty if there is none.
// Directories that this process may not read contain no volumes.
func findForeign(ctx context.Context, export *os.Root, subDir string) (found string, err error) {
	err = inDirectory(export, subDir, func(fd int) error {
		found, err = (&search{top: fd, names: maxNames}).below(ctx, subDir)
		return err
	})
	return found, err
}

// search walks a directory level by level: archives lie beside volumes, and so above the
// content of any volume.
type search struct {
	top   int
	names int // left to read
}

func (s *search) below(ctx context.Context, subDir string) (found string, err error) {
	queue := []string{"."}
	for n := 0; n < min(len(queue), maxDirs) && s.names > 0; n++ {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		list, err := s.list(queue[n])
		if err != nil && !isInaccessible(err) {
			return "", fmt.Errorf("read directory %s: %w", path.Join(subDir, queue[n]), err)
		}
		if i := slices.IndexFunc(list, func(e fs.DirEntry) bool { return e.IsDir() && isArchive(e.Name()) }); i >= 0 {
			return path.Join(subDir, queue[n], list[i].Name()) + ", the archive of a deleted volume", nil
		}
		if tarball := legacyTarballIn(list); n == 0 && tarball != "" {
			return tarball + ", a snapshot of csi-driver-nfs", nil
		}
		queue = append(queue, subdirectories(queue[n], list)...)
	}
	return "", nil
}

// list reads the entries of a directory, as many as names allows.
func (s *search) list(dir string) ([]fs.DirEntry, error) {
	fd, err := fsat.OpenBeneath(s.top, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir)
	list, err := f.ReadDir(s.names)
	s.names -= len(list)
	if err = errors.Join(err, f.Close()); errors.Is(err, io.EOF) {
		err = nil
	}
	return list, err
}

// isInaccessible reports whether the directory is gone, replaced or not readable.
func isInaccessible(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// subdirectories returns the entries of a directory that contains only directories.
func subdirectories(dir string, list []fs.DirEntry) (below []string) {
	for _, e := range list {
		if !e.IsDir() {
			return nil
		}
		below = append(below, path.Join(dir, e.Name()))
	}
	return below
}

// legacyTarballIn returns the tarball that makes a directory a snapshot of
// csi-driver-nfs, which writes VOLUME.tar.gz or VOLUME.tar into a directory of its own.
// Beside other files it counts only if VOLUME is a generated name.
func legacyTarballIn(list []fs.DirEntry) string {
	generated := regexp.MustCompile(`^pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	for _, e := range list {
		for _, ending := range legacy.Endings() {
			source, ok := strings.CutSuffix(e.Name(), ending)
			if ok && e.Type().IsRegular() && (len(list) == 1 || generated.MatchString(source)) {
				return e.Name()
			}
		}
	}
	return ""
}
