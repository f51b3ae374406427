package catalog

import (
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

// CheckNotNestedExport is Catalog.CheckNotNestedExport for an export whose disk is too
// full for a catalog.
func CheckNotNestedExport(export *os.Root, subDir string) error {
	dir, err := export.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(checkNotNestedExport(int(dir.Fd()), subDir), dir.Close())
}

// CheckNotNestedExport returns volume.ErrOwned for a directory that is an export with a
// catalog of its own, or lies in one: its content is not this export's to adopt or to
// delete. A directory that the driver may not enter is not such an export.
func (c *Catalog) CheckNotNestedExport(subDir string) error {
	return checkNotNestedExport(int(c.exportDir.Fd()), subDir)
}

func checkNotNestedExport(export int, subDir string) error {
	for dir := path.Clean(subDir); dir != "." && dir != "/"; dir = path.Dir(dir) {
		fd, err := fsat.OpenBeneath(export, path.Join(dir, volume.MetaDir), unix.O_PATH|unix.O_DIRECTORY)
		switch {
		case err == nil:
			return errors.Join(nestedExportError(dir, subDir), unix.Close(fd))
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, fs.ErrPermission):
		default:
			return fmt.Errorf("look for a share in %s: %w", dir, err)
		}
	}
	return nil
}

func nestedExportError(dir, subDir string) error {
	if dir == path.Clean(subDir) {
		return fmt.Errorf("%w: %s is used as a share itself and may hold volumes: %s is in it", volume.ErrOwned, dir, volume.MetaDir)
	}
	return fmt.Errorf("%w: %s lies in %s, which is used as a share itself: %s is in it", volume.ErrOwned, subDir, dir, volume.MetaDir)
}
