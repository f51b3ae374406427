package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A directory to be deleted is first quarantined in TempDir, where nobody touches it for
// an hour, and then moved to the trash, which any controller may empty at any time. In
// between, the driver checks whose directory it was.

const nameMax = 255 // NAME_MAX

// Quarantine returns an unused name in TempDir for the directory of a volume, of
// DeletedKind or KeptKind. The name ends with the original path, for people and for
// QuarantinedFrom, unless it is too long for a file name then.
func (c *Catalog) Quarantine(kind, subDir string) (fsat.Place, error) {
	dir, name, err := c.Temp(kindOf(kind, subDir))
	if full := name + "." + url.PathEscape(subDir); len(full) <= nameMax {
		name = full
	}
	return fsat.Place{At: dir, Name: name}, err
}

// Quarantined lists the directories in quarantine that were at subDir.
func (c *Catalog) Quarantined(kind, subDir string) ([]string, error) {
	return c.Temporary(kindOf(kind, subDir))
}

// QuarantinedFrom returns the original path of a quarantined directory, if its name has
// it.
func QuarantinedFrom(name string) (subDir string, ok bool) {
	_, escaped, ok := strings.Cut(name, ".")
	if !ok || !strings.HasPrefix(name, DeletedKind) {
		return "", false
	}
	subDir, err := url.PathUnescape(escaped)
	return subDir, err == nil && volume.CheckSubDir(subDir) == nil
}

// Discard moves an entry of the catalog to the trash. A missing entry is success.
func (c *Catalog) Discard(name string) error {
	if err := c.meta.MkdirAll(TrashDir, 0o700); err != nil {
		return err
	}
	err := c.meta.Rename(name, path.Join(TrashDir, trashName(name, time.Now())))
	if errors.Is(err, unix.EACCES) {
		err = c.discardLocked(name)
	}
	return fsat.IgnoreNotExist(err)
}

// discardLocked is Discard for a directory that its owner may not write to.
func (c *Catalog) discardLocked(name string) error {
	bin, err := c.Trash()
	if err != nil {
		return err
	}
	parent, err := c.meta.OpenRoot(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	return fsat.Place{Parent: parent, Name: path.Base(name)}.Rename(fsat.Place{At: bin, Name: trashName(name, time.Now())})
}

// DiscardQuarantined moves the quarantined directory of subDir, by its name in TempDir,
// to the trash. A missing one is success.
func (c *Catalog) DiscardQuarantined(subDir, name string) error {
	temp, _, err := c.Temp("")
	if err != nil {
		return err
	}
	bin, err := c.Trash()
	if err != nil {
		return err
	}
	for range fsat.MaxLostRaces {
		err = fsat.Place{At: temp, Name: name}.Rename(fsat.Place{At: bin, Name: trashName(subDir, time.Now())})
		switch {
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, fs.ErrExist):
			continue // the name, which has the nanosecond, is in use
		case errors.Is(err, fs.ErrNotExist):
			return nil // another controller was faster
		}
		return err
	}
	return err
}

// trashName begins with a name for people and is unique by its time.
func trashName(subDir string, now time.Time) string {
	base := path.Base(subDir)
	base = strings.ToValidUTF8(base[:min(len(base), 200)], "")
	return fmt.Sprintf("%s.%d", base, now.UnixNano())
}
