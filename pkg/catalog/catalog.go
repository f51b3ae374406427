package catalog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Places below the export's .nfs-csi directory.
const (
	volumesDir = "volumes"
	namesDir   = "names"
	// SnapshotsDir has a directory for each snapshot that is whole.
	SnapshotsDir = "snapshots"
	TrashDir     = "trash"
	TempDir      = "tmp"
	// CopyKind begins the kinds of what is kept in TempDir while KeepAlive is called.
	CopyKind = "copy"

	dirMode    = 0o700
	recordMode = 0o600
)

// Catalog is the driver's own directory of one export.
type Catalog struct {
	meta *os.Root
}

// Open opens .nfs-csi, making it if need be. It refuses anything there but a
// directory: a symlink would put the records into somebody's hands. Close it
// after use.
func Open(export *os.Root) (*Catalog, error) {
	before, err := export.Lstat(volume.MetaDir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = export.Mkdir(volume.MetaDir, dirMode); err == nil || errors.Is(err, fs.ErrExist) {
			before, err = export.Lstat(volume.MetaDir)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("catalog: %w: %s is not a directory", volume.ErrOwned, volume.MetaDir)
	}
	meta, err := export.OpenRoot(volume.MetaDir)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	after, err := meta.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%w: %s was replaced while it was opened", volume.ErrOwned, volume.MetaDir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("catalog: %w", err), meta.Close())
	}
	return &Catalog{meta: meta}, nil
}

// Close ends the use of the catalog.
func (c *Catalog) Close() error { return c.meta.Close() }

// Meta is the driver's own directory, in which nobody else can write.
func (c *Catalog) Meta() *os.Root { return c.meta }

func recordDir(subDir string) string  { return path.Join(volumesDir, subDir) }
func recordPath(subDir string) string { return path.Join(volumesDir, subDir, volume.RecordFile) }

// Read returns the record of the directory subDir; fs.ErrNotExist if there is none.
func (c *Catalog) Read(subDir string) (Record, error) {
	r, err := c.readFile(recordPath(subDir))
	if err == nil && r.SubDir != subDir {
		err = &BrokenError{fmt.Sprintf("it is the record of %q", r.SubDir)}
	}
	if err != nil {
		return Record{}, fmt.Errorf("record of %s: %w", subDir, err)
	}
	return r, nil
}

func (c *Catalog) readFile(name string) (Record, error) {
	b, err := c.meta.ReadFile(name)
	if err != nil {
		return Record{}, err
	}
	return decode(b)
}

// Create writes the record of a directory that has none, or returns
// fs.ErrExist. Of any number of controllers exactly one succeeds, and the
// record is whole from the moment it exists: it is written elsewhere and given
// its name by link(2), which, unlike open(2) with O_EXCL, cannot leave an empty
// one behind when the process dies.
func (c *Catalog) Create(r Record) error {
	b, err := encode(r)
	if err != nil {
		return err
	}
	temp, err := c.writeTemp(b)
	if err != nil {
		return fmt.Errorf("record of %s: %w", r.SubDir, err)
	}
	err = c.link(temp, r.SubDir)
	if rmErr := c.meta.Remove(temp); err == nil && rmErr != nil {
		err = rmErr
	}
	if err != nil {
		return fmt.Errorf("record of %s: %w", r.SubDir, err)
	}
	return nil
}

func (c *Catalog) link(temp, subDir string) error {
	var err error
	// Another volume's Remove may prune the directories just made, at any time.
	for range 64 {
		err = c.meta.MkdirAll(recordDir(subDir), dirMode)
		if err == nil {
			err = c.meta.Link(temp, recordPath(subDir))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrExist) && c.same(temp, recordPath(subDir)) {
		return nil // the reply was lost and the server saw the request twice
	}
	return err
}

func (c *Catalog) same(a, b string) bool {
	infoA, errA := c.meta.Lstat(a)
	infoB, errB := c.meta.Lstat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// Replace puts a new record in the place of the old one; at any moment there is
// one of the two, whole.
func (c *Catalog) Replace(r Record) error {
	b, err := encode(r)
	if err != nil {
		return err
	}
	temp, err := c.writeTemp(b)
	if err != nil {
		return fmt.Errorf("record of %s: %w", r.SubDir, err)
	}
	if err := c.meta.Rename(temp, recordPath(r.SubDir)); err != nil {
		return errors.Join(fmt.Errorf("record of %s: %w", r.SubDir, err), c.meta.Remove(temp))
	}
	return nil
}

// Remove removes the record and the directories that only led to it. No record
// is success.
func (c *Catalog) Remove(subDir string) error {
	if err := c.meta.Remove(recordPath(subDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record of %s: %w", subDir, err)
	}
	for dir := recordDir(subDir); len(dir) > len(volumesDir); dir = path.Dir(dir) {
		if err := c.meta.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // not empty: it leads to other records
		}
	}
	return nil
}

// Conflict returns volume.ErrOwned when the directory lies in that of another
// live volume or holds one.
func (c *Catalog) Conflict(subDir string) error {
	for dir := path.Dir(subDir); dir != "." && dir != "/"; dir = path.Dir(dir) {
		_, err := c.meta.Lstat(recordPath(dir))
		if err == nil {
			return fmt.Errorf("%w: %s lies in the volume %s", volume.ErrOwned, subDir, dir)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for volumes above %s: %w", subDir, err)
		}
	}
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

// TempName makes a name below TempDir that nobody else uses. It tells its age,
// for Abandoned.
func (c *Catalog) TempName(kind string) (string, error) {
	if err := c.meta.MkdirAll(TempDir, dirMode); err != nil {
		return "", err
	}
	return path.Join(TempDir, fmt.Sprintf("%s-%d-%s", kind, time.Now().UnixNano(), rand.Text())), nil
}

func (c *Catalog) writeTemp(b []byte) (name string, err error) {
	if name, err = c.TempName("record"); err != nil {
		return "", err
	}
	return name, c.writeFile(name, b)
}

// writeFile makes a file, whole or not at all.
func (c *Catalog) writeFile(name string, b []byte) error {
	f, err := c.meta.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, recordMode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	// A full disk may show only when the data reaches the server.
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, c.meta.Remove(name))
	}
	return nil
}
