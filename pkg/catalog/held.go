package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Held is a record whose directory is open. That directory belongs to this record for
// good, as it is renamed together with it: an operation on a held record never
// affects a later record of the same path, however late it reaches the server.
type Held struct {
	cat *Catalog
	rec Record
	fd  int
}

// Hold opens the record of subDir; fs.ErrNotExist if there is none. Close it after
// use.
func (c *Catalog) Hold(subDir string) (*Held, error) {
	h := &Held{cat: c, fd: -1}
	dir, err := c.dir(volumesDir, false)
	if err == nil {
		h.fd, err = fsat.OpenBeneath(int(dir.Fd()), subDir, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	if err == nil {
		var b []byte
		if b, err = fsat.ReadFile(h.fd, volume.RecordFile); err == nil {
			h.rec, err = decodeOf(b, subDir)
		}
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("record of %s: %w", subDir, err)
	}
	return h, nil
}

// Record as Hold read it.
func (h *Held) Record() Record { return h.rec }

// Close closes the record's directory.
func (h *Held) Close() error { return unix.Close(h.fd) }

// Exists reports whether the record's directory still exists: until it is removed, no
// later record can have its path. Opening the record would not tell, as a client
// opens a file it knows by its handle, even after it was unlinked.
func (h *Held) Exists() (bool, error) {
	there, err := fsat.Exists(h.fd)
	if err != nil {
		return false, fmt.Errorf("record of %s: %w", h.rec.SubDir, err)
	}
	return there, nil
}

// Remove removes the record and the parents that lead to no other one. A missing
// record is success.
func (h *Held) Remove() error {
	for try := range fsat.MaxLostRaces {
		err := fsat.Unlink(h.fd, volume.RecordFile)
		if err != nil && !fsat.IsGone(err) {
			return fmt.Errorf("record of %s: %w", h.rec.SubDir, err)
		}
		if err != nil && try > 0 {
			return nil // the directory leads to other records, or belongs to a later one
		}
		gone, err := h.cat.rmdir(path.Clean(h.rec.SubDir))
		if err != nil {
			return err
		}
		if gone {
			return h.cat.Prune(path.Dir(h.rec.SubDir))
		}
		// Not empty: it leads to other records, or a Replace came in between.
	}
	return fmt.Errorf("record of %s: it keeps being replaced", h.rec.SubDir)
}

// Replace replaces the held record atomically. Errors: unix.ESTALE when it is gone.
func (h *Held) Replace(r Record) error {
	b, err := encode(r)
	if err != nil {
		return err
	}
	temp, err := h.cat.writeTemp(b)
	if err != nil {
		return fmt.Errorf("record of %s: %w", r.SubDir, err)
	}
	tmp, err := h.cat.dir(TempDir, true)
	if err == nil {
		err = asStale(fsat.Rename(int(tmp.Fd()), path.Base(temp), h.fd, volume.RecordFile))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("record of %s: %w", r.SubDir, err), h.cat.meta.Remove(temp))
	}
	return nil
}

// Remove is Held.Remove for a record read or written earlier. It does nothing if
// another record has its path by now.
func (c *Catalog) Remove(r Record) error {
	err := c.holding(r, (*Held).Remove)
	if fsat.IsGone(err) { // some of its parents may be left
		return c.Prune(r.SubDir)
	}
	return err
}

// Replace is Held.Replace for a record read earlier. Errors: unix.ESTALE when it is
// gone or another record has its path.
func (c *Catalog) Replace(r Record) error {
	return asStale(c.holding(r, func(h *Held) error { return h.Replace(r) }))
}

// holding calls do with the record, or returns fs.ErrNotExist if it is gone or another
// record has its path.
func (c *Catalog) holding(r Record, do func(*Held) error) error {
	h, err := c.Hold(r.SubDir)
	if err != nil {
		return err
	}
	if !h.rec.Same(r) {
		err = fmt.Errorf("record of %s: another is in its place: %w", r.SubDir, fs.ErrNotExist)
	} else {
		err = do(h)
	}
	return errors.Join(err, h.Close())
}

// Prune removes the directory of subDir's record and its parents as far as they are
// empty.
func (c *Catalog) Prune(subDir string) error {
	return fsat.PruneWith(path.Clean(subDir), c.rmdir)
}

// rmdir removes a directory that leads to no record, and reports whether it is gone.
func (c *Catalog) rmdir(dir string) (gone bool, err error) {
	err = c.inParent(dir, fsat.Rmdir)
	if path.Dir(dir) == "." && errors.Is(err, unix.ESTALE) {
		return false, fmt.Errorf("record of %s: %w", dir, err)
	}
	return err == nil || fsat.IsGone(err), nil
}
