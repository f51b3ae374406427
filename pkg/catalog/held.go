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

// Held is a record by the directory that it lies in, which is open. A directory
// here is that of one record for good: it comes to its place together with it.
// What is done to a record that is held never hits a later one of the same place,
// however long it takes to reach the server.
type Held struct {
	cat *Catalog
	rec Record
	fd  int
}

// Hold returns the record of the directory subDir; fs.ErrNotExist if there is
// none. Close it after use.
func (c *Catalog) Hold(subDir string) (*Held, error) {
	h := &Held{cat: c, fd: -1}
	dir, err := c.dir(volumesDir, false)
	if err == nil {
		h.fd, err = fsat.OpenBeneath(int(dir.Fd()), subDir, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	if err == nil {
		if h.rec, err = h.read(subDir); err != nil {
			err = errors.Join(err, h.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("record of %s: %w", subDir, err)
	}
	return h, nil
}

// Record as it was when it was taken hold of.
func (h *Held) Record() Record { return h.rec }

// Close lets go of the record.
func (h *Held) Close() error { return unix.Close(h.fd) }

func (h *Held) read(subDir string) (Record, error) {
	b, err := fsat.ReadFile(h.fd, volume.RecordFile)
	if err != nil {
		return Record{}, err
	}
	return decodeOf(b, subDir)
}

// Exists reports whether the directory of the record is still there: as long as it
// is, no later record has its place. The record itself would not tell: a client
// opens a file that it knows by its handle, also one that is there no more.
func (h *Held) Exists() (bool, error) {
	there, err := fsat.Exists(h.fd)
	if err != nil {
		return false, fmt.Errorf("record of %s: %w", h.rec.SubDir, err)
	}
	return there, nil
}

// Remove removes the record and the directories that only led to it. A record that
// is gone is success.
func (h *Held) Remove() error {
	for again := range fsat.MaxLostRaces {
		err := fsat.Unlink(h.fd, volume.RecordFile)
		if err != nil && !fsat.IsGone(err) {
			return fmt.Errorf("record of %s: %w", h.rec.SubDir, err)
		}
		if err != nil && again > 0 {
			return nil // the directory leads to other records, or is that of a later one
		}
		gone, err := h.cat.rmdir(path.Clean(h.rec.SubDir))
		if err != nil {
			return err
		}
		if gone {
			return h.cat.Prune(path.Dir(h.rec.SubDir))
		}
		// Or a Replace came in between.
	}
	return fmt.Errorf("record of %s: it keeps being replaced", h.rec.SubDir)
}

// Replace puts a new record in the place of the one that is held; at any moment
// there is one of the two, whole. Errors: unix.ESTALE when it is gone.
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
		err = missing(fsat.Rename(int(tmp.Fd()), path.Base(temp), h.fd, volume.RecordFile))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("record of %s: %w", r.SubDir, err), h.cat.meta.Remove(temp))
	}
	return nil
}

// Remove is that of Held for a record as it was read or made some time ago: when
// its place is that of another one by now, nothing is removed.
func (c *Catalog) Remove(r Record) error {
	err := c.holding(r, (*Held).Remove)
	if fsat.IsGone(err) { // of directories that led to it something may be left
		return c.Prune(r.SubDir)
	}
	return err
}

// Replace is that of Held for a record as it was read some time ago, in its new
// form. Errors: unix.ESTALE when it is gone, or another's is in its place.
func (c *Catalog) Replace(r Record) error {
	return missing(c.holding(r, func(h *Held) error { return h.Replace(r) }))
}

// holding calls do with the record if it is the one in its place, and is
// fs.ErrNotExist otherwise.
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

// Prune removes the directories that led to the record of subDir, and its own, as
// far as they are empty.
func (c *Catalog) Prune(subDir string) error {
	return fsat.PruneWith(path.Clean(subDir), c.rmdir)
}

// rmdir removes a directory that leads to no record, and tells whether it is gone.
func (c *Catalog) rmdir(dir string) (gone bool, err error) {
	err = c.in(dir, func(at int, name string) error { return fsat.Rmdir(at, name) })
	if path.Dir(dir) == "." && errors.Is(err, unix.ESTALE) {
		return false, fmt.Errorf("record of %s: %w", dir, err)
	}
	return err == nil || fsat.IsGone(err), nil
}
