package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Draft is a record that is written but not visible yet. It ends with Publish or
// Drop; one that a dead process left behind is Abandoned.
type Draft struct {
	record Record
	bytes  []byte
	name   string // of a directory in TempDir that holds only the record
	closed chan struct{}
}

// Draft writes a record to TempDir, where nobody reads it.
func (c *Catalog) Draft(r Record) (*Draft, error) {
	b, err := encode(r)
	d := &Draft{record: r, bytes: b, name: tempName("record"), closed: make(chan struct{})}
	if err == nil {
		err = c.write(d)
	}
	if err != nil {
		return nil, fmt.Errorf("record of %s: %w", r.SubDir, err)
	}
	return d, nil
}

func (c *Catalog) write(d *Draft) error {
	tmp, err := c.dir(TempDir, true)
	if err != nil {
		return err
	}
	if err := asStale(fsat.Mkdir(int(tmp.Fd()), d.name, dirMode)); err != nil {
		return err
	}
	if err := asStale(d.write(int(tmp.Fd()))); err != nil {
		return errors.Join(err, c.Drop(d))
	}
	return nil
}

func (d *Draft) write(tmp int) error {
	fd, err := d.open(tmp)
	if err != nil {
		close(d.closed)
		return err
	}
	n := 0
	err = fsat.Restart(func() (err error) { n, err = unix.Write(fd, d.bytes); return err })
	if err == nil && n < len(d.bytes) {
		err = io.ErrShortWrite
	}
	// Closing is a round trip of its own and cannot fail meaningfully: data written
	// with O_DSYNC is on the server's disk, or the write has failed.
	go func() {
		defer close(d.closed)
		_ = unix.Close(fd)
	}()
	if err != nil {
		return &os.PathError{Op: "write", Path: path.Join(d.name, volume.RecordFile), Err: err}
	}
	return nil
}

func (d *Draft) open(tmp int) (fd int, err error) {
	// O_PATH saves a round trip: this process has just made the directory.
	dir, err := fsat.Open(tmp, d.name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	fd, err = fsat.Open(dir, volume.RecordFile, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_DSYNC, recordMode)
	return fd, errors.Join(err, unix.Close(dir))
}

// Drop discards a draft that was not published.
func (c *Catalog) Drop(d *Draft) error {
	<-d.closed // or the client would rename the open file to .nfsXXXX
	return c.meta.RemoveAll(path.Join(TempDir, d.name))
}

// Publish makes the draft the record of its directory, or returns fs.ErrExist if there
// is one. Of any number of controllers exactly one succeeds, and the record is
// complete from the moment it exists, as it is renamed together with the directory
// that holds it: rename(2) replaces an empty directory and refuses one that holds
// anything.
//
// Errors: those of CheckNotNested; there is no record then.
func (c *Catalog) Publish(d *Draft) error {
	err := c.rename(d)
	switch {
	case err != nil:
		// Remove the parents that were made for it and that no other record needs.
		err = errors.Join(err, c.Prune(d.record.SubDir), c.Drop(d))
	case d.record.Shared != SharedVolume: // which lies in the shared directory
		// The record is visible now: of two controllers that claim a directory and one
		// below it, at least one sees the other. The rename has already shown that there
		// was nothing below.
		if err = c.checkAbove(d.record.SubDir); err != nil {
			<-d.closed // as for Drop
			err = errors.Join(err, c.Remove(d.record))
		}
	}
	<-d.closed
	if err != nil {
		return fmt.Errorf("record of %s: %w", d.record.SubDir, err)
	}
	return nil
}

// rename renames the draft's directory to the path of its record.
func (c *Catalog) rename(d *Draft) error {
	tmp, err := c.dir(TempDir, true)
	if err != nil {
		return err
	}
	for range fsat.MaxLostRaces {
		err = c.inParent(d.record.SubDir, func(dir int, name string) error { return fsat.Rename(int(tmp.Fd()), d.name, dir, name) })
		switch {
		case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY):
			// A record, records below, or directories that a dead process left behind.
			if err := c.clearLeftovers(d.record); err != nil {
				return err
			}
		case fsat.IsGone(err):
			if _, there := c.meta.Lstat(path.Join(TempDir, d.name)); errors.Is(there, fs.ErrNotExist) {
				return c.unlessPublished(d, err)
			}
			above := path.Dir(d.record.SubDir)
			if above == "." {
				return asStale(err)
			}
			if mkErr := c.meta.MkdirAll(recordDir(above), dirMode); mkErr != nil && !errors.Is(mkErr, fs.ErrNotExist) {
				return mkErr
			}
		default:
			return err
		}
	}
	if fsat.IsGone(err) {
		return err // its parents keep being pruned
	}
	return fmt.Errorf("directories keep appearing in its place: %w", unix.EBUSY)
}
