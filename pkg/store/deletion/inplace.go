package deletion

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// InPlace deletes the directory without quarantine, where it cannot be renamed into the
// trash: the disk is too full, or the trash is in another file system. It returns why if it
// cannot.
func (d *Deletion) InPlace(ctx context.Context, x *session.Session, why error) error {
	d.Session = x
	if err := d.Look(); err != nil {
		return err
	}
	at, err := fsat.OpenPlace(d.Root, d.ID.SubDir)
	if err != nil {
		return errors.Join(why, fsat.IgnoreNotExist(err))
	}
	defer at.Close()
	dir, err := enterLocked(at)
	if err != nil {
		return errors.Join(why, fsat.IgnoreNotExist(err))
	}
	defer dir.Close()
	// The record is read after the directory is opened: it vouches for what is open.
	if owned, err := d.hold(ctx); err != nil || !owned {
		return errors.Join(why, err)
	}
	if d.held != nil {
		defer d.held.Close() //nolint:errcheck // only read
	}
	if err := emptyDir(ctx, dir, d.Workers); err != nil {
		return errors.Join(why, err)
	}
	return d.removeInPlace(ctx, at)
}

// enterLocked enters a directory, after adding the permissions that it may lack.
func enterLocked(at fsat.Place) (*os.Root, error) {
	dir, err := at.Enter()
	if !errors.Is(err, unix.EACCES) {
		return dir, err
	}
	if _, unlocked := at.Unlock(); !unlocked {
		return nil, err
	}
	return at.Enter()
}

// hold reports whether the directory is the volume's to delete, and holds its record.
func (d *Deletion) hold(ctx context.Context) (owned bool, err error) {
	var rec catalog.Record
	d.held = nil
	if d.Cat != nil {
		held, err := d.Cat.Hold(d.ID.SubDir)
		if err == nil {
			d.held, rec = held, held.Record()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	if d.held == nil {
		return d.ownsUnrecorded(ctx)
	}
	policy := d.Volumes.Policy(rec, d.ID)
	owned = rec.Same(d.firstSeen) && policy == volume.OnDeleteDelete
	if owned && rec.Adopted {
		err = d.checkNotNestedExport(policy)
	}
	if !owned || err != nil {
		return false, errors.Join(err, d.held.Close())
	}
	return true, nil
}

// ownsUnrecorded is hold for a volume without a record.
func (d *Deletion) ownsUnrecorded(ctx context.Context) (owned bool, err error) {
	if d.firstSeen.Name != "" {
		return false, nil // its record is gone
	}
	policy, err := d.lastPolicy(ctx)
	if err != nil || policy != volume.OnDeleteDelete {
		return false, err
	}
	if at, err := fsat.Boundary(d.Root, d.ID.SubDir); err != nil || at != "" {
		return false, err // another catalog says whose it is
	}
	if err := d.checkNotNested(policy); err != nil || d.Cat == nil {
		return err == nil, err
	}
	return d.ownsDirectory()
}

// removeInPlace removes the emptied directory and the record.
func (d *Deletion) removeInPlace(ctx context.Context, at fsat.Place) error {
	if err := d.Step(ctx, "remove directory in place"); err != nil {
		return err
	}
	if d.held != nil {
		if exists, err := d.held.Exists(); err != nil || !exists {
			return err
		}
	}
	if err := fsat.IgnoreNotExist(at.Rmdir()); err != nil {
		return err
	}
	if err := fsat.Prune(d.Root, d.ID.SubDir); err != nil || d.held == nil {
		return err
	}
	return d.removeRecord()
}

// emptyDir removes everything in a directory.
func emptyDir(ctx context.Context, dir *os.Root, workers int) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	_, err = tree.Removal{Workers: workers}.Empty(ctx, f)
	return errors.Join(err, f.Close())
}
