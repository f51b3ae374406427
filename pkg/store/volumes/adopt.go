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
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/legacy"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A directory that is there and belongs to no volume is adopted, as both
// predecessors do it. Who may name a claim may then name the directory, so that
// what is known to be of others is never adopted: archives of deleted volumes,
// whose names anybody can tell, and snapshots of csi-driver-nfs.

const (
	// maxLeads is how many directories mayAdopt looks into: those that hold nothing
	// but directories, as all do that lead to a volume or an archive.
	maxLeads = 1000
	// maxNames is how many names it reads in all of them.
	maxNames = 1 << 16
)

// ArchivePrefix begins the names of archives, as csi-driver-nfs has it.
const ArchivePrefix = "archived-"

// mayAdopt returns volume.ErrNotAdopted for a directory that the volume does not get.
func (c *Claim) mayAdopt(ctx context.Context) error {
	subDir := c.want.SubDir
	if c.want.ReusedFrom != "" {
		return nil // it was the same claim's
	}
	if c.req.Params.NoAdopt {
		return fmt.Errorf("%w: %s: the class says %s: \"false\"; move the directory away on the server, or choose another %s",
			volume.ErrNotAdopted, subDir, volume.KeyAdopt, volume.KeySubDir)
	}
	for name := range strings.SplitSeq(subDir, "/") {
		if isArchive(name) {
			return fmt.Errorf("%w: %s: a directory named %s* is the archive of a deleted volume; "+
				"rename it on the server if this volume is to have it, or choose another name", volume.ErrNotAdopted, subDir, ArchivePrefix)
		}
	}
	found, err := lookForOthers(ctx, c.Root, subDir)
	if err != nil || found == "" {
		return err
	}
	return fmt.Errorf("%w: %s holds %s; move that out of it on the server, or choose another %s",
		volume.ErrNotAdopted, subDir, found, volume.KeySubDir)
}

func isArchive(name string) bool { return strings.HasPrefix(name, ArchivePrefix) }

// cameBetween is mayAdopt for a directory that was not there when the record of the
// volume was made, and was before the volume's own could be. One that is empty may
// have been made by another controller for this record, and is nobody's archive.
func (c *Claim) cameBetween(ctx context.Context) error {
	empty, err := isEmpty(c.Root, c.rec.SubDir)
	if err != nil || empty {
		return err
	}
	if err := c.mayAdopt(ctx); err != nil {
		return errors.Join(err, forget(c.Session, c.rec))
	}
	return nil
}

// isEmpty says no of a directory that this process may not look into.
func isEmpty(export *os.Root, subDir string) (empty bool, err error) {
	err = inDirectory(export, subDir, func(fd int) error {
		list, err := (&search{top: fd, names: 1}).list(".")
		empty = err == nil && len(list) == 0
		return err
	})
	return empty, err
}

// inDirectory runs do with a descriptor of a directory that this process may look
// into.
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

// lookForOthers says what lies in a directory that is somebody else's; empty for
// nothing. What this process may not look into is no directory that leads to volumes.
func lookForOthers(ctx context.Context, export *os.Root, subDir string) (found string, err error) {
	err = inDirectory(export, subDir, func(fd int) error {
		found, err = (&search{top: fd, names: maxNames}).below(ctx, subDir)
		return err
	})
	return found, err
}

// search of a directory, level by level: an archive lies beside the volume that it
// was, and so above whatever is in any other.
type search struct {
	top   int
	names int // still to be read
}

func (s *search) below(ctx context.Context, subDir string) (found string, err error) {
	queue := []string{"."}
	for n := 0; n < min(len(queue), maxLeads) && s.names > 0; n++ {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		list, err := s.list(queue[n])
		if err != nil && !notToBeSeen(err) {
			return "", fmt.Errorf("look into %s: %w", path.Join(subDir, queue[n]), err)
		}
		if i := indexArchive(list); i >= 0 {
			return path.Join(subDir, queue[n], list[i].Name()) + ", the archive of a deleted volume", nil
		}
		if tarball := snapshotIn(list); n == 0 && tarball != "" {
			return tarball + ", a snapshot of csi-driver-nfs", nil
		}
		queue = append(queue, leadsTo(queue[n], list)...)
	}
	return "", nil
}

// list reads a directory as far as it may.
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

// notToBeSeen: what was a directory is none any more, or is closed to this process.
func notToBeSeen(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

func indexArchive(list []fs.DirEntry) int {
	for i, e := range list {
		if e.IsDir() && isArchive(e.Name()) {
			return i
		}
	}
	return -1
}

// leadsTo are the directories in one that holds nothing else.
func leadsTo(dir string, list []fs.DirEntry) (below []string) {
	for _, e := range list {
		if !e.IsDir() {
			return nil
		}
		below = append(below, path.Join(dir, e.Name()))
	}
	return below
}

// snapshotIn is the archive that makes a directory a snapshot of csi-driver-nfs,
// which writes VOLUME.tar.gz or VOLUME.tar into a directory of its own. Also beside
// other files it is one if VOLUME is a name that provisioners give.
func snapshotIn(list []fs.DirEntry) string {
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
