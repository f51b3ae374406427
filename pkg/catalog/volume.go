package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Read returns the record of subDir; fs.ErrNotExist if there is none.
func (c *Catalog) Read(subDir string) (r Record, err error) {
	b, err := c.readBytes(volumesDir, path.Join(subDir, volume.RecordFile))
	if err == nil {
		r, err = decodeOf(b, subDir)
	}
	if err != nil {
		return Record{}, fmt.Errorf("record of %s: %w", subDir, err)
	}
	return r, nil
}

func (c *Catalog) readBytes(in, name string) ([]byte, error) {
	dir, err := c.dir(in, false)
	if err != nil {
		return nil, err
	}
	b, err := fsat.ReadFile(int(dir.Fd()), name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) {
		err = &BrokenError{Reason: err.Error()} // not a regular file
	}
	return b, err
}

// Create writes the record of a directory that has none: Draft and Publish.
func (c *Catalog) Create(r Record) error {
	d, err := c.Draft(r)
	if err != nil {
		return err
	}
	return c.Publish(d)
}

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
	d := &Draft{record: r, bytes: b, closed: make(chan struct{})}
	var tmp *os.File
	if err == nil {
		tmp, d.name, err = c.Temp("record")
	}
	if err == nil {
		err = asStale(fsat.Mkdir(int(tmp.Fd()), d.name, dirMode))
	}
	if err == nil {
		if err = asStale(d.write(int(tmp.Fd()))); err != nil {
			err = errors.Join(err, c.Drop(d))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("record of %s: %w", r.SubDir, err)
	}
	return d, nil
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
			// What others made or pruned in between is for the next attempt.
			if mkErr := c.meta.MkdirAll(recordDir(above), dirMode); mkErr != nil && !errors.Is(mkErr, fs.ErrExist) && !errors.Is(mkErr, fs.ErrNotExist) {
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

// unlessPublished returns nil instead of the error if the record is in place: the reply
// to an earlier rename was lost, and the request was retransmitted.
func (c *Catalog) unlessPublished(d *Draft, err error) error {
	volumes, dirErr := c.dir(volumesDir, false)
	if dirErr != nil {
		return errors.Join(err, dirErr)
	}
	if have, readErr := fsat.ReadFile(int(volumes.Fd()), path.Join(d.record.SubDir, volume.RecordFile)); readErr == nil && bytes.Equal(have, d.bytes) {
		return nil
	}
	return asStale(err)
}

// inParent calls do with the parent of the directory of subDir's record, and the name
// of that directory; fs.ErrNotExist if the parent is missing.
func (c *Catalog) inParent(subDir string, do func(dir int, name string) error) error {
	if !filepath.IsLocal(subDir) || subDir == "." {
		return fmt.Errorf("%w: directory %q", volume.ErrInvalid, subDir)
	}
	volumes, err := c.dir(volumesDir, true)
	if err != nil {
		return err
	}
	above, name := path.Split(path.Clean(subDir))
	if above == "" {
		return do(int(volumes.Fd()), name)
	}
	fd, err := fsat.OpenBeneath(int(volumes.Fd()), path.Clean(above), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	return errors.Join(do(fd, name), unix.Close(fd))
}

// asStale turns fs.ErrNotExist for an entry of an open directory into what NFS returns
// for a directory that was removed or replaced.
func asStale(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: a directory of %s has been removed: %w", unix.ESTALE, volume.MetaDir, err)
	}
	return err
}
