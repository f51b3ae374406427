// Package deletion deletes volumes by their policy: the directory is quarantined and
// moved to the trash, retained, or archived beside its old path. It deletes snapshots, too.
package deletion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Deletion of one volume: its directory, and its record if it has one. It can be run
// repeatedly.
type Deletion struct {
	ID      volume.ID
	Volumes volumes.Config
	// Workers remove entries in parallel when the directory is deleted in place.
	Workers int
	// Free returns volume.ErrInUse while the volume is the source of a copy.
	Free func(session.Key) error
	// MountOptions for a file system below the share, and Kick, which has its trash emptied.
	MountOptions []string
	Kick         func(session.Target)

	*session.Session
	held *catalog.Held // nil for a volume without a record
	// firstSeen is the record at the first run. A later run, after ESTALE, may find that
	// of another volume, possibly with the same ID.
	firstSeen catalog.Record
}

// Run deletes the volume by its policy. A volume that is gone is no error, even if its
// directory now belongs to another.
//
// Errors: volume.ErrOwned when the directory holds or lies in another live volume,
// volume.ErrInUse.
func (d *Deletion) Run(ctx context.Context, x *session.Session) error {
	d.Session = x
	err := x.Open()
	if err == nil {
		err = d.delete(ctx)
	} else if at, boundaryErr := d.belowPseudoRoot(); boundaryErr == nil && at != "" {
		err = d.deleteBelow(ctx, at)
	}
	// EXDEV: another file system was mounted above the volume after it was created.
	if fsat.IsFull(err) || errors.Is(err, unix.EXDEV) {
		err = d.InPlace(ctx, x, err)
	}
	return err
}

func (d *Deletion) delete(ctx context.Context) error {
	held, err := d.Cat.Hold(d.ID.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		d.held = nil
		if err := d.Free(d.Key); err != nil {
			return err
		}
		return d.deleteUnrecorded(ctx)
	}
	if err != nil {
		return err
	}
	d.held = held
	if held.Record().Shared == catalog.SharedDirectory {
		return errors.Join(d.deleteShared(ctx), held.Close())
	}
	if err = d.Free(d.Key); err == nil {
		err = d.deleteRecorded(ctx)
	}
	return errors.Join(err, d.held.Close())
}

func (d *Deletion) deleteRecorded(ctx context.Context) error {
	rec := d.held.Record()
	owner, err := volume.ParseID(rec.ID)
	if err != nil {
		return fmt.Errorf("record of %s: %w", rec.SubDir, err)
	}
	if d.firstSeen.Name == "" {
		d.firstSeen = rec
	}
	if owner.Name != d.ID.Name || !rec.IsVolume() || !rec.Same(d.firstSeen) {
		klog.FromContext(ctx).Info("Nothing to delete: the volume is gone and another one has its directory", logkeys.VolumeID, d.ID.String(), logkeys.Owner, rec.ID)
		return nil
	}
	if rec.Source != "" { // its staging directories may be left over
		if err := d.Cat.EndStagings(d.Key.SubDir, ""); err != nil {
			return err
		}
	}
	policy := d.Volumes.Policy(rec, d.ID)
	if rec.Adopted {
		if err := d.checkNotNestedExport(policy); err != nil {
			return err
		}
	}
	owned, err := d.applyPolicy(ctx, policy)
	if err != nil || !owned {
		return err
	}
	return d.forget(ctx, policy)
}

// forget removes the record. It comes last: until then a repeated call finds what is
// left to do, and the directory cannot be adopted.
func (d *Deletion) forget(ctx context.Context, policy volume.OnDelete) error {
	rec := d.held.Record()
	if policy == volume.OnDeleteRetain {
		if err := d.noteRetained(ctx, rec); err != nil {
			return err
		}
	}
	if err := d.Step(ctx, "remove record"); err != nil {
		return err
	}
	return d.removeRecord()
}

// noteRetained notes, for repeated calls, that the directory is retained. A full disk is
// no error if the volume ID says so too.
func (d *Deletion) noteRetained(ctx context.Context, rec catalog.Record) error {
	err := d.Step(ctx, "mark directory as retained")
	if err == nil {
		err = d.Cat.NoteRetained(rec)
	}
	if fsat.IsFull(err) && d.Volumes.Policy(catalog.Record{}, d.ID) == volume.OnDeleteRetain {
		return nil
	}
	return err
}

// removeRecord removes the held record, after the entries that refer to it.
func (d *Deletion) removeRecord() error {
	rec := d.held.Record()
	if err := volumes.ForgetName(d.Cat, rec, d.ID); err != nil {
		return err
	}
	if rec.ReusedFrom != "" {
		if err := d.Cat.ForgetReuse(rec); err != nil {
			return err
		}
	}
	return d.held.Remove()
}

// applyPolicy applies the policy to the directory. owned is false if another controller
// has deleted the volume meanwhile.
func (d *Deletion) applyPolicy(ctx context.Context, policy volume.OnDelete) (owned bool, err error) {
	switch policy {
	case volume.OnDeleteRetain:
		return d.ownsDirectory()
	case volume.OnDeleteArchive:
		return d.archive(ctx)
	}
	name, owned, err := d.quarantineOwned(ctx, catalog.DeletedKind)
	if err != nil || !owned {
		return false, err
	}
	if err := d.discard(ctx, name); err != nil {
		return false, err
	}
	if err := d.Step(ctx, "prune parents"); err != nil {
		return false, err
	}
	return true, fsat.Prune(d.Root, d.ID.SubDir)
}

// ownsDirectory reports whether the directory still belongs to the volume, or to none.
// The network can delay a call without limit, while another controller deletes the volume
// and a later one takes over the directory.
func (d *Deletion) ownsDirectory() (bool, error) {
	if d.held != nil {
		if exists, err := d.held.Exists(); err != nil || exists {
			return exists, err
		}
	}
	// When a claim reuses the directory, the reuse note is written before this record is
	// removed, and the next volume's record after that.
	if _, err := d.Cat.Reuse(d.ID.SubDir); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	current, err := d.Cat.Hold(d.ID.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if d.held == nil || !current.Record().Same(d.held.Record()) {
		return false, current.Close()
	}
	// The volume's creator has rewritten the record.
	previous := d.held
	d.held = current
	return true, previous.Close()
}

// deleteShared deletes a volume of a shared directory: only its record.
func (d *Deletion) deleteShared(ctx context.Context) error {
	held, err := d.Cat.Hold(volumes.SharedPath(d.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	d.held = held
	err = d.Step(ctx, "remove record")
	if err == nil {
		err = d.removeRecord()
	}
	return errors.Join(err, held.Close())
}
