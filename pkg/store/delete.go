package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Delete ends a volume, by its policy: its directory goes to the trash, whose
// removal takes place later, is kept, or is kept under another name. A volume
// that is gone is no error, also when its directory has become that of another.
//
// Errors: volume.ErrOwned when the directory holds or lies in another live
// volume, those of share.Cache.
func (s *Store) Delete(ctx context.Context, id volume.ID, mountOptions []string) error {
	if err := volume.CheckSubDir(id.SubDir); err != nil { // never the export itself
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	t := s.anyShare(id.Export, id.SubDir, mountOptions)
	if err := s.copies.volumes.End(ctx, t.Key, id.Name); err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	d := &deletion{Store: s, id: id}
	err := s.exports.On(ctx, t, func(ctx context.Context, x *session.Session) error {
		d.Session = x
		err := x.Open()
		if err == nil {
			err = d.delete(ctx)
		}
		if fsat.IsFull(err) {
			err = d.inPlace(ctx, err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	s.known.forget(id)
	s.reclaim.Kick(t)
	return nil
}

// deletion of a volume's directory, and of its record if it has one.
type deletion struct {
	*Store
	*session.Session
	id   volume.ID
	held *catalog.Held // nil for a volume of a predecessor
	// first is the record as the call first saw it. If it begins anew, as when the
	// mount was stale, another volume's may be there, also of the same ID.
	first catalog.Record
}

func (d *deletion) delete(ctx context.Context) error {
	held, err := d.Cat.Hold(d.id.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		d.held = nil
		if err := d.copies.Free(d.Key); err != nil {
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
	if err = d.copies.Free(d.Key); err == nil {
		err = d.withRecord(ctx)
	}
	return errors.Join(err, d.held.Close())
}

func (d *deletion) withRecord(ctx context.Context) error {
	rec := d.held.Record()
	owner, err := volume.ParseID(rec.ID)
	if err != nil {
		return fmt.Errorf("record of %s: %w", rec.SubDir, err)
	}
	if d.first.Name == "" {
		d.first = rec
	}
	if owner.Name != d.id.Name || !rec.IsVolume() || !rec.Same(d.first) {
		klog.FromContext(ctx).Info("The volume is gone and its directory is another's: nothing deleted", "id", d.id.String(), "owner", rec.ID)
		return nil
	}
	if rec.Source != "" { // the copy that it was to become may have been left behind
		if err := d.Cat.EndStagings(d.Key.SubDir, ""); err != nil {
			return err
		}
	}
	policy := d.cfg.volumes().Policy(rec, d.id)
	if rec.Adopted {
		if err := d.spareShares(policy); err != nil {
			return err
		}
	}
	mine, err := d.dispose(ctx, policy)
	if err != nil || !mine {
		return err
	}
	return d.forget(ctx, policy)
}

// forget removes the record. Last: as long as there is something that a repeated call
// must do, there is the record, and nobody can adopt the directory.
func (d *deletion) forget(ctx context.Context, policy volume.OnDelete) error {
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
func (d *deletion) removeRecord() error {
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
func (d *deletion) dispose(ctx context.Context, policy volume.OnDelete) (mine bool, err error) {
	switch policy {
	case volume.OnDeleteRetain:
		return d.mine()
	case volume.OnDeleteArchive:
		return d.archive(ctx)
	}
	taken, err := d.takeMine(ctx, catalog.QuarantineKind(d.Key.SubDir))
	if err != nil || !taken.mine {
		return false, err
	}
	if err := d.discardTaken(ctx, taken.name); err != nil {
		return false, err
	}
	if err := d.Step(ctx, "prune parents"); err != nil {
		return false, err
	}
	return true, fsat.Prune(d.Root, d.id.SubDir)
}

// mine tells whether the directory still is that of the volume, or of none. A call
// can be held up by the network for as long as it likes. If another controller has
// deleted the volume meanwhile, the directory may have become that of a later one.
func (d *deletion) mine() (bool, error) {
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
func (d *deletion) deleteShared(ctx context.Context) error {
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
