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

// leftOpen begins the names that NFS clients give to files which are removed while
// they have them open. They stay when the client dies.
const leftOpen = ".nfs"

// makeWay removes what dead processes have left where a record is to come to be: a
// record gets a directory of its own, see Held.
//
// Errors: fs.ErrExist where there is a record, volume.ErrOwned as of CheckNotNested.
func (c *Catalog) makeWay(r Record) error {
	_, err := c.readBytes(volumesDir, path.Join(r.SubDir, volume.RecordFile))
	if err == nil {
		return fs.ErrExist
	}
	if fsat.IsGone(err) {
		err = c.around(r)
	}
	if err == nil {
		err = c.below(r.SubDir)
	}
	if err != nil {
		return err
	}
	return c.sweep(r.SubDir)
}

// sweep removes all directories below one that lead to no record.
func (c *Catalog) sweep(dir string) error {
	names, err := c.Below(dir)
	for _, name := range names {
		below := path.Join(dir, name)
		err = errors.Join(err, c.in(below, func(at int, name string) error {
			err := fsat.Rmdir(at, name)
			switch {
			case errors.Is(err, unix.ENOTDIR) && strings.HasPrefix(name, leftOpen):
				err = fsat.Unlink(at, name)
			case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY):
				if err = c.sweep(below); err == nil {
					err = fsat.Rmdir(at, name)
				}
			}
			if fsat.IsGone(err) || errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
				return nil // by others, who also put something in there again
			}
			return err
		}))
	}
	return err
}
