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

// Read returns the record of the directory subDir; fs.ErrNotExist if there is none.
func (c *Catalog) Read(subDir string) (Record, error) {
	b, err := c.readBytes(volumesDir, path.Join(subDir, volume.RecordFile))
	if err != nil {
		return Record{}, fmt.Errorf("record of %s: %w", subDir, err)
	}
	r, err := decodeOf(b, subDir)
	if err != nil {
		return Record{}, fmt.Errorf("record of %s: %w", subDir, err)
	}
	return r, nil
}

func (c *Catalog) readFile(place, name string) (Record, error) {
	b, err := c.readBytes(place, name)
	if err != nil {
		return Record{}, err
	}
	return decode(b)
}

func (c *Catalog) readBytes(place, name string) ([]byte, error) {
	dir, err := c.dir(place, false)
	if err != nil {
		return nil, err
	}
	b, err := fsat.ReadFile(int(dir.Fd()), name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) {
		err = &BrokenError{Reason: err.Error()} // somebody has put something else there
	}
	return b, err
}

// Create writes the record of a directory that has none, as Draft and Publish do.
func (c *Catalog) Create(r Record) error {
	d, err := c.Draft(r)
	if err != nil {
		return err
	}
	return c.Publish(d)
}

// place renames the draft's directory to its place.
func (c *Catalog) place(tmp *os.File, d *Draft) (err error) {
	for range fsat.MaxLostRaces {
		err = c.in(d.record.SubDir, func(dir int, name string) error { return fsat.Rename(int(tmp.Fd()), d.name, dir, name) })
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESTALE) {
			return err
		}
		if _, there := c.meta.Lstat(path.Join(TempDir, d.name)); errors.Is(there, fs.ErrNotExist) {
			return c.placed(d, err)
		}
		above := path.Dir(d.record.SubDir)
		if above == "." {
			return missing(err)
		}
		if mkErr := c.meta.MkdirAll(recordDir(above), dirMode); mkErr != nil && !errors.Is(mkErr, fs.ErrNotExist) {
			return mkErr
		}
	}
	return err
}

// placed returns nil when the record is that of a rename whose reply was lost, so
// that the server saw the request twice.
func (c *Catalog) placed(d *Draft, err error) error {
	volumes, dirErr := c.dir(volumesDir, false)
	if dirErr != nil {
		return errors.Join(err, dirErr)
	}
	if have, readErr := fsat.ReadFile(int(volumes.Fd()), path.Join(d.record.SubDir, volume.RecordFile)); readErr == nil && bytes.Equal(have, d.bytes) {
		return nil
	}
	return missing(err)
}

// in calls do with the directory that holds the one of subDir's record, and the
// name of that; fs.ErrNotExist if it is not there.
func (c *Catalog) in(subDir string, do func(dir int, name string) error) error {
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

// missing says of a directory that was open what NFS says: that it is another
// one now, or none.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: a directory of %s has been removed: %w", unix.ESTALE, volume.MetaDir, err)
	}
	return err
}

func (c *Catalog) same(a, b string) bool {
	infoA, errA := c.meta.Lstat(a)
	infoB, errB := c.meta.Lstat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// CheckNotNested returns volume.ErrOwned when the directory lies in that of another
// live volume or holds one.
func (c *Catalog) CheckNotNested(subDir string) error {
	if err := c.above(subDir); err != nil {
		return err
	}
	return c.below(subDir)
}

func (c *Catalog) above(subDir string) error {
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

func (c *Catalog) below(subDir string) error {
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
