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

// InPlace deletes a volume where it is, as a disk may be so full that there is no
// room for the trash, or for a name in it. It returns why where it does not come to
// that.
func (d *Deletion) InPlace(ctx context.Context, x *session.Session, why error) error {
	d.Session = x
	if err := d.Look(); err != nil {
		return err
	}
	at, err := fsat.OpenPlace(d.Root, d.id.SubDir)
	if err != nil {
		return errors.Join(why, fsat.IgnoreNotExist(err))
	}
	defer at.Close()
	dir, err := enterLocked(at)
	if err != nil {
		return errors.Join(why, fsat.IgnoreNotExist(err))
	}
	defer dir.Close()
	// What is open now is the volume's as long as the record that is seen now is.
	if own, err := d.hold(ctx); err != nil || !own {
		return errors.Join(why, err)
	}
	if d.held != nil {
		defer d.held.Close() //nolint:errcheck // only read
	}
	if err := empty(ctx, dir, d.cfg.Workers); err != nil {
		return errors.Join(why, err)
	}
	return d.endInPlace(ctx, at)
}

// enterLocked is enter for a directory that its owner may have locked.
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

// hold tells whether the volume is there to be deleted, and holds its record.
func (d *Deletion) hold(ctx context.Context) (own bool, err error) {
	var rec catalog.Record
	d.held = nil
	if d.Cat != nil {
		held, err := d.Cat.Hold(d.id.SubDir)
		if err == nil {
			d.held, rec = held, held.Record()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	if d.held == nil {
		return d.holdsNone(ctx)
	}
	policy := d.cfg.Volumes.Policy(rec, d.id)
	own = rec.Same(d.first) && policy == volume.OnDeleteDelete
	if own && rec.Adopted {
		err = d.spareShares(policy)
	}
	if !own || err != nil {
		return false, errors.Join(err, d.held.Close())
	}
	return true, nil
}

// holdsNone is hold for a volume that has no record.
func (d *Deletion) holdsNone(ctx context.Context) (own bool, err error) {
	if d.first.Name != "" {
		return false, nil // it had one
	}
	policy, err := d.lastPolicy(ctx)
	if err != nil || policy != volume.OnDeleteDelete {
		return false, err
	}
	if err := d.spareOthers(policy); err != nil || d.Cat == nil {
		return err == nil, err
	}
	return d.stillOwned()
}

func (d *Deletion) endInPlace(ctx context.Context, at fsat.Place) error {
	if err := d.Step(ctx, "remove directory in its place"); err != nil {
		return err
	}
	if d.held != nil {
		if still, err := d.held.Exists(); err != nil || !still {
			return err
		}
	}
	if err := fsat.IgnoreNotExist(at.Rmdir()); err != nil {
		return err
	}
	if err := fsat.Prune(d.Root, d.id.SubDir); err != nil || d.held == nil {
		return err
	}
	return d.removeRecord()
}

// empty removes all that is in a directory.
func empty(ctx context.Context, dir *os.Root, workers int) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	_, err = tree.Removal{Workers: workers}.Empty(ctx, f)
	return errors.Join(err, f.Close())
}
