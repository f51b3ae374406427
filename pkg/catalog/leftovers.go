package catalog

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// sillyRename is the prefix of the names that NFS clients give to open files which are
// removed. They remain when the client dies.
const sillyRename = ".nfs"

// clearLeftovers removes what dead processes left at the path of a new record: its
// directory must come with it, see Held.
//
// Errors: fs.ErrExist if there is a record; those of CheckNotNested.
func (c *Catalog) clearLeftovers(r Record) error {
	_, err := c.readBytes(volumesDir, path.Join(r.SubDir, volume.RecordFile))
	if err == nil {
		return fs.ErrExist
	}
	if !fsat.IsGone(err) {
		return err
	}
	if r.Shared != SharedVolume { // which lies in the shared directory
		if err := c.checkAbove(r.SubDir); err != nil {
			return err
		}
	}
	if err := c.checkBelow(r.SubDir); err != nil {
		return err
	}
	return c.sweep(r.SubDir)
}

// sweep removes the directories below one that lead to no record.
func (c *Catalog) sweep(dir string) error {
	names, err := c.Below(dir)
	for _, name := range names {
		below := path.Join(dir, name)
		err = errors.Join(err, c.inParent(below, func(at int, name string) error {
			err := fsat.Rmdir(at, name)
			switch {
			case errors.Is(err, unix.ENOTDIR) && strings.HasPrefix(name, sillyRename):
				err = fsat.Unlink(at, name)
			case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY):
				if err = c.sweep(below); err == nil {
					err = fsat.Rmdir(at, name)
				}
			}
			if fsat.IsGone(err) || errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
				return nil // others removed it, or use it again
			}
			return err
		}))
	}
	return err
}
