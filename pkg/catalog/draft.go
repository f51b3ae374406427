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

// Draft is a record that is written and not in its place yet. It ends with
// Publish or Drop; one that a dead process left is removed like all that is
// Abandoned.
type Draft struct {
	record Record
	bytes  []byte
	name   string // of a directory in TempDir that the record is alone in
	closed chan struct{}
}

// Draft writes a record where nobody reads it.
func (c *Catalog) Draft(r Record) (*Draft, error) {
	b, err := encode(r)
	if err != nil {
		return nil, fmt.Errorf("record of %s: %w", r.SubDir, err)
	}
	d := &Draft{record: r, bytes: b, name: tempName("record"), closed: make(chan struct{})}
	if err := c.write(d); err != nil {
		return nil, fmt.Errorf("record of %s: %w", r.SubDir, err)
	}
	return d, nil
}

func (c *Catalog) write(d *Draft) error {
	tmp, err := c.dir(TempDir, true)
	if err != nil {
		return err
	}
	if err := missing(fsat.Mkdir(int(tmp.Fd()), d.name, dirMode)); err != nil {
		return err
	}
	if err := missing(d.write(int(tmp.Fd()))); err != nil {
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
	// To close is a round trip of its own. It has nothing to tell: what is written
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
	// O_PATH: about a directory that this process has just made the client need
	// not ask the server.
	dir, err := fsat.Open(tmp, d.name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	fd, err = fsat.Open(dir, volume.RecordFile, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_DSYNC, recordMode)
	return fd, errors.Join(err, unix.Close(dir))
}

// Drop gives up a record that is not in its place.
func (c *Catalog) Drop(d *Draft) error {
	<-d.closed // or the client would keep the file under another name
	return c.meta.RemoveAll(path.Join(TempDir, d.name))
}

// Publish puts a record in its place, or returns fs.ErrExist where there is one.
// Of any number of controllers exactly one succeeds, and the record is whole from
// the moment it exists: it is renamed to its place together with the directory
// that it is alone in. rename(2) puts an empty directory out of the way and
// refuses one that holds anything.
//
// Errors: volume.ErrOwned as of CheckNotNested, and then there is no record.
func (c *Catalog) Publish(d *Draft) error {
	err := c.publish(d)
	<-d.closed
	if err != nil {
		return fmt.Errorf("record of %s: %w", d.record.SubDir, err)
	}
	return nil
}

func (c *Catalog) publish(d *Draft) error {
	if err := c.placeAlone(d); err != nil {
		// Directories may have been made for it, as far as others did not.
		return errors.Join(err, c.Prune(d.record.SubDir), c.Drop(d))
	}
	// Others see this record now: of two controllers that claim a directory and one
	// below it, at least one sees the other. That nothing was below, the rename has
	// told.
	if err := c.around(d.record); err != nil {
		<-d.closed // as for Drop
		return errors.Join(err, c.Remove(d.record))
	}
	return nil
}

func (c *Catalog) placeAlone(d *Draft) error {
	tmp, err := c.dir(TempDir, true)
	if err != nil {
		return err
	}
	for range fsat.MaxLostRaces {
		err = c.place(tmp, d)
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		// A record, records below, or directories that a dead process has left.
		if wayErr := c.makeWay(d.record); wayErr != nil {
			return wayErr
		}
	}
	return fmt.Errorf("its place is not to be cleared: %w", unix.EBUSY)
}
