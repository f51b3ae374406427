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

// Places below the export's .nfs-csi directory.
const (
	volumesDir = "volumes"
	namesDir   = "names"
	// retainedDir has a note for each directory that NoteRetained was told of.
	retainedDir = "retained"
	// reuseDir has a file for each directory that is on its way to another volume.
	reuseDir = "reuse"
	// SnapshotsDir has a directory for each snapshot that is whole.
	SnapshotsDir = "snapshots"
	TrashDir     = "trash"
	TempDir      = "tmp"
	// CopyKind begins the kinds of what is kept in TempDir while KeepAlive is called.
	CopyKind = "copy"
	// KeptKind begins those of what is never Abandoned.
	KeptKind = "kept"

	dirMode    = 0o700
	recordMode = 0o600
)

// Catalog is the driver's own directory of one export. It keeps its directories
// open, since over NFS to open one is a round trip; any number of goroutines may
// use it.
type Catalog struct {
	export    *os.Root
	exportDir *os.File
	meta      *os.Root
	metaDir   *os.File
	is        fs.FileInfo // of meta

	mu   sync.Mutex
	dirs map[string]*os.File // below meta
}

// Open opens .nfs-csi, making it if need be. It refuses anything there but a
// directory: a symlink would put the records into somebody's hands. Close it
// after use, and before the export.
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
	if c.is, err = c.meta.Stat("."); err != nil {
		return err
	}
	if !os.SameFile(before, c.is) {
		return fmt.Errorf("%w: %s was replaced while it was opened", volume.ErrOwned, volume.MetaDir)
	}
	if c.metaDir, err = c.meta.Open("."); err != nil {
		return err
	}
	if c.exportDir, err = c.export.Open("."); err == nil && isNew {
		// Now that there is room for them: what is deleted on a full disk goes there.
		err = errors.Join(c.meta.MkdirAll(TempDir, dirMode), c.meta.MkdirAll(TrashDir, dirMode))
	}
	return err
}

// Close ends the use of the catalog.
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

// ErrReplaced is also unix.ESTALE: what is open is of no more use.
var ErrReplaced = fmt.Errorf("%s has been replaced: %w", volume.MetaDir, unix.ESTALE)

// Check returns ErrReplaced when .nfs-csi is not the directory any more that was
// opened, as after an administrator has put another one in its place.
func (c *Catalog) Check() error {
	now, err := c.export.Lstat(volume.MetaDir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, c.is) {
		return fmt.Errorf("catalog: %w", ErrReplaced)
	}
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	return nil
}

// Revalidate asks the server for every directory that is open; ErrReplaced when one is
// not there any more.
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

// Trash is the directory whose entries are to be removed, open as long as the
// catalog.
func (c *Catalog) Trash() (*os.File, error) { return c.dir(TrashDir, true) }

// dir is a directory of the catalog, opened when it is first asked for. Where it
// is missing it is made or is fs.ErrNotExist. Should it be taken away later, a
// server says ESTALE to whoever uses it.
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
