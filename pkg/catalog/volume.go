package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Read returns the record of subDir; fs.ErrNotExist if there is none.
func (c *Catalog) Read(subDir string) (r Record, err error) {
	b, err := c.readBytes(volumesDir, path.Join(subDir, volume.RecordFile))
	if err == nil {
		r, err = decodeOf(b, subDir)
	}
	if err != nil {
		return Record{}, fmt.Errorf("record of %s: %w", subDir, err)
	}
	return r, nil
}

func (c *Catalog) readBytes(in, name string) ([]byte, error) {
	dir, err := c.dir(in, false)
	if err != nil {
		return nil, err
	}
	b, err := fsat.ReadFile(int(dir.Fd()), name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) {
		err = &BrokenError{Reason: err.Error()} // not a regular file
	}
	return b, err
}

// Create writes the record of a directory that has none: Draft and Publish.
func (c *Catalog) Create(r Record) error {
	d, err := c.Draft(r)
	if err != nil {
		return err
	}
	return c.Publish(d)
}

// unlessPublished returns nil instead of the error if the record is in place: the reply
// to an earlier rename was lost, and the request was retransmitted.
func (c *Catalog) unlessPublished(d *Draft, err error) error {
	volumes, dirErr := c.dir(volumesDir, false)
	if dirErr != nil {
		return errors.Join(err, dirErr)
	}
	if have, readErr := fsat.ReadFile(int(volumes.Fd()), path.Join(d.record.SubDir, volume.RecordFile)); readErr == nil && bytes.Equal(have, d.bytes) {
		return nil
	}
	return asStale(err)
}

// inParent calls do with the parent of the directory of subDir's record, and the name
// of that directory; fs.ErrNotExist if the parent is missing.
func (c *Catalog) inParent(subDir string, do func(dir int, name string) error) error {
	if !filepath.IsLocal(subDir) || subDir == "." {
		return fmt.Errorf("%w: directory %q", volume.ErrInvalid, subDir)
	}
	volumes, err := c.dir(volumesDir, true)
	if err != nil {
		return err
	}
	above, name := path.Split(path.Clean(subDir))
	if above == "" {
		return do(int(volumes.Fd()), name)
	}
	fd, err := fsat.OpenBeneath(int(volumes.Fd()), path.Clean(above), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	return errors.Join(do(fd, name), unix.Close(fd))
}

// asStale turns fs.ErrNotExist for an entry of an open directory into what NFS returns
// for a directory that was removed or replaced.
func asStale(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: a directory of %s has been removed: %w", unix.ESTALE, volume.MetaDir, err)
	}
	return err
}

func (c *Catalog) sameFile(a, b string) bool {
	infoA, errA := c.meta.Lstat(a)
	infoB, errB := c.meta.Lstat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// CheckNotNested returns volume.ErrOwned when the directory lies in that of another
// live volume or contains one.
func (c *Catalog) CheckNotNested(subDir string) error {
	if err := c.checkAbove(subDir); err != nil {
		return err
	}
	return c.checkBelow(subDir)
}

func (c *Catalog) checkAbove(subDir string) error {
	for dir := path.Dir(subDir); dir != "." && dir != "/"; dir = path.Dir(dir) {
		_, err := c.meta.Lstat(RecordPath(dir))
		if err == nil {
			return fmt.Errorf("%w: %s lies in the volume %s", volume.ErrOwned, subDir, dir)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for volumes above %s: %w", subDir, err)
		}
	}
	return nil
}

func (c *Catalog) checkBelow(subDir string) error {
	below := recordDir(subDir)
	err := fs.WalkDir(c.meta.FS(), below, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.Name() == volume.RecordFile && path.Dir(p) != below:
			return fmt.Errorf("%w: %s holds the volume %s", volume.ErrOwned, subDir, strings.TrimPrefix(path.Dir(p), volumesDir+"/"))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for volumes below %s: %w", subDir, err)
	}
	return nil
}
