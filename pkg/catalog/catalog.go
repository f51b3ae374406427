package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Directories below the export's .nfs-csi directory.
const (
	volumesDir = "volumes"
	namesDir   = "names"
	// retainedDir has a note for each directory passed to NoteRetained.
	retainedDir = "retained"
	// reuseDir has a note for each directory that is being handed to another volume.
	reuseDir = "reuse"
	// SnapshotsDir has a directory for each complete snapshot.
	SnapshotsDir = "snapshots"
	TrashDir     = "trash"
	TempDir      = "tmp"
	// CopyKind is the prefix of kinds that stay in TempDir while KeepAlive is called.
	CopyKind = "copy"
	// KeptKind is the prefix of kinds that are never Abandoned: directories in quarantine
	// before they are archived.
	KeptKind = "kept"
	// DeletedKind is the prefix of the kinds of directories in quarantine before deletion.
	DeletedKind = "deleted"

	dirMode    = 0o700
	recordMode = 0o600
)

// Catalog is the driver's own directory of one export. It keeps its directories
// open, as opening one is a round trip over NFS. It is safe for concurrent use.
type Catalog struct {
	export    *os.Root
	exportDir *os.File
	meta      *os.Root
	metaDir   *os.File
	metaInfo  fs.FileInfo

	mu   sync.Mutex
	dirs map[string]*os.File // below meta
}

// Open opens .nfs-csi and creates it if it is missing. It refuses anything but a
// directory there: a symlink would hand the records to whoever made it. Close the
// catalog after use, and before the export.
func Open(export *os.Root) (*Catalog, error) {
	c := &Catalog{export: export, dirs: map[string]*os.File{}}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("catalog: %w", err), c.Close())
	}
	return c, nil
}

func (c *Catalog) open() error {
	before, err := c.export.Lstat(volume.MetaDir)
	isNew := false
	if errors.Is(err, fs.ErrNotExist) {
		err = c.export.Mkdir(volume.MetaDir, dirMode)
		if isNew = err == nil; isNew || errors.Is(err, fs.ErrExist) {
			before, err = c.export.Lstat(volume.MetaDir)
		}
	}
	if err != nil {
		return err
	}
	if !before.IsDir() {
		return fmt.Errorf("%w: %s is not a directory", volume.ErrOwned, volume.MetaDir)
	}
	if c.meta, err = c.export.OpenRoot(volume.MetaDir); err != nil {
		return err
	}
	if c.metaInfo, err = c.meta.Stat("."); err != nil {
		return err
	}
	if !os.SameFile(before, c.metaInfo) {
		return fmt.Errorf("%w: %s was replaced while it was opened", volume.ErrOwned, volume.MetaDir)
	}
	if c.metaDir, err = c.meta.Open("."); err != nil {
		return err
	}
	if c.exportDir, err = c.export.Open("."); err == nil && isNew {
		// Made in advance: a delete on a full disk needs them.
		err = errors.Join(c.meta.MkdirAll(TempDir, dirMode), c.meta.MkdirAll(TrashDir, dirMode))
	}
	return err
}

// Close closes all directories.
func (c *Catalog) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, dir := range c.dirs {
		errs = append(errs, dir.Close())
	}
	clear(c.dirs)
	for _, dir := range []*os.File{c.metaDir, c.exportDir} {
		if dir != nil {
			errs = append(errs, dir.Close())
		}
	}
	if c.meta != nil {
		errs = append(errs, c.meta.Close())
	}
	return errors.Join(errs...)
}

// ErrReplaced is also unix.ESTALE: the open directories are no longer the catalog.
var ErrReplaced = fmt.Errorf("%s has been replaced: %w", volume.MetaDir, unix.ESTALE)

// Check returns ErrReplaced when .nfs-csi is no longer the directory that was opened,
// for example because an administrator has restored a backup.
func (c *Catalog) Check() error {
	now, err := c.export.Lstat(volume.MetaDir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, c.metaInfo) {
		err = ErrReplaced
	}
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	return nil
}

// Revalidate asks the server about every open directory; ErrReplaced when one of them
// has been removed.
func (c *Catalog) Revalidate() error {
	c.mu.Lock()
	open := slices.AppendSeq([]*os.File{c.metaDir, c.exportDir}, maps.Values(c.dirs))
	c.mu.Unlock()
	for _, dir := range open {
		there, err := fsat.Exists(int(dir.Fd()))
		if err == nil && !there {
			err = ErrReplaced
		}
		if err != nil {
			return fmt.Errorf("catalog: %s: %w", dir.Name(), err)
		}
	}
	return nil
}

// Meta is the driver's own directory, in which nobody else can write.
func (c *Catalog) Meta() *os.Root { return c.meta }

// Export is the export's own directory, open as long as the catalog.
func (c *Catalog) Export() *os.File { return c.exportDir }

// Trash is the directory whose entries are waiting to be removed, open as long as the
// catalog.
func (c *Catalog) Trash() (*os.File, error) { return c.dir(TrashDir, true) }

// dir returns a directory of the catalog and opens it on first use. A missing one is
// created or is fs.ErrNotExist. If it is removed later, the server returns ESTALE for
// its descriptor.
func (c *Catalog) dir(name string, mkdir bool) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dir := c.dirs[name]; dir != nil {
		return dir, nil
	}
	meta := int(c.metaDir.Fd())
	if mkdir {
		if err := fsat.Mkdir(meta, name, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	fd, err := fsat.OpenBeneath(meta, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	c.dirs[name] = os.NewFile(uintptr(fd), name)
	return c.dirs[name], nil
}

func recordDir(subDir string) string { return path.Join(volumesDir, subDir) }

// RecordPath is where the record of a directory lies below the catalog's directory.
func RecordPath(subDir string) string { return path.Join(volumesDir, subDir, volume.RecordFile) }
