// Package deletion ends volumes: their directories are quarantined and go to the trash,
// are retained, or are archived beside where they were.
package deletion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Config of deletions.
type Config struct {
	Volumes volumes.Config
	// Workers is how many entries are removed at a time from a directory that a full
	// disk has no room to quarantine.
	Workers int
	// Free returns volume.ErrInUse while a copy is being made of the volume.
	Free func(session.Key) error
}

// Deletion of a volume's directory, and of its record if it has one.
type Deletion struct {
	*session.Session
	cfg  Config
	id   volume.ID
	held *catalog.Held // nil for a volume of a predecessor
	// first is the record as the call first saw it. When the call is run again, as where
	// the mount was stale, another volume's may be there, also of the same ID.
	first catalog.Record
}

// New returns the deletion of a volume, which may be run more than once.
func New(cfg Config, id volume.ID) *Deletion { return &Deletion{cfg: cfg, id: id} }

// Run ends the volume by its policy: its directory goes to the trash, is retained, or is
// archived. A volume that is gone is no error, also when its directory has become that
// of another.
//
// Errors: volume.ErrOwned when the directory holds or lies in another live volume,
// volume.ErrInUse.
func (d *Deletion) Run(ctx context.Context, x *session.Session) error {
	d.Session = x
	err := x.Open()
	if err == nil {
		err = d.delete(ctx)
	}
	if fsat.IsFull(err) {
		err = d.InPlace(ctx, x, err)
	}
	return err
}

func (d *Deletion) delete(ctx context.Context) error {
	held, err := d.Cat.Hold(d.id.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		d.held = nil
		if err := d.cfg.Free(d.Key); err != nil {
			return err
		}
		return d.withoutRecord(ctx)
	}
	if err != nil {
		return err
	}
	d.held = held
	if held.Record().Shared == catalog.SharedDirectory {
		return errors.Join(d.deleteShared(ctx), held.Close())
	}
	if err = d.cfg.Free(d.Key); err == nil {
		err = d.withRecord(ctx)
	}
	return errors.Join(err, d.held.Close())
}

func (d *Deletion) withRecord(ctx context.Context) error {
	rec := d.held.Record()
	owner, err := volume.ParseID(rec.ID)
	if err != nil {
		return fmt.Errorf("record of %s: %w", rec.SubDir, err)
	}
	if d.first.Name == "" {
		d.first = rec
	}
	if owner.Name != d.id.Name || !rec.IsVolume() || !rec.Same(d.first) {
		klog.FromContext(ctx).Info("Nothing to delete: the volume is gone and another one has its directory", logkeys.VolumeID, d.id.String(), logkeys.Owner, rec.ID)
		return nil
	}
	if rec.Source != "" { // the copy that it was to become may have been left behind
		if err := d.Cat.EndStagings(d.Key.SubDir, ""); err != nil {
			return err
		}
	}
	policy := d.cfg.Volumes.Policy(rec, d.id)
	if rec.Adopted {
		if err := d.spareShares(policy); err != nil {
			return err
		}
	}
	own, err := d.dispose(ctx, policy)
	if err != nil || !own {
		return err
	}
	return d.forget(ctx, policy)
}

// forget removes the record. Last: as long as there is something that a repeated call
// must do, there is the record, and nobody can adopt the directory.
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

// removeRecord removes the record that is held, and before it what leads to it.
func (d *Deletion) removeRecord() error {
	rec := d.held.Record()
	if err := volumes.ForgetName(d.Cat, rec, d.id); err != nil {
		return err
	}
	if rec.ReusedFrom != "" {
		if err := d.Cat.ForgetReuse(rec); err != nil {
			return err
		}
	}
	return d.held.Remove()
}

// dispose does what the policy says with the directory. It was not the volume's
// any more when the volume turns out to have been deleted meanwhile.
func (d *Deletion) dispose(ctx context.Context, policy volume.OnDelete) (own bool, err error) {
	switch policy {
	case volume.OnDeleteRetain:
		return d.stillOwned()
	case volume.OnDeleteArchive:
		return d.archive(ctx)
	}
	q, err := d.quarantineOwn(ctx, catalog.QuarantineKind(d.Key.SubDir))
	if err != nil || !q.own {
		return false, err
	}
	if err := d.discard(ctx, q.name); err != nil {
		return false, err
	}
	if err := d.Step(ctx, "prune parents"); err != nil {
		return false, err
	}
	return true, fsat.Prune(d.Root, d.id.SubDir)
}

// stillOwned tells whether the directory still is that of the volume, or of none. A call
// can be held up by the network for as long as it likes. If another controller has
// deleted the volume meanwhile, the directory may have become that of a later one.
func (d *Deletion) stillOwned() (bool, error) {
	if d.held != nil {
		if still, err := d.held.Exists(); err != nil || still {
			return still, err
		}
	}
	// Of two volumes of a claim there is first the note of the next one, then no
	// record, then the next one's.
	if _, err := d.Cat.Reuse(d.id.SubDir); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	now, err := d.Cat.Hold(d.id.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if d.held == nil || !now.Record().Same(d.held.Record()) {
		return false, now.Close()
	}
	// Its maker has put the record there once more.
	before := d.held
	d.held = now
	return true, before.Close()
}

// deleteShared ends a volume of a shared directory, which is no more than its record.
func (d *Deletion) deleteShared(ctx context.Context) error {
	held, err := d.Cat.Hold(volumes.SharedPath(d.id))
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
