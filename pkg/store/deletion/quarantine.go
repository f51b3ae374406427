package deletion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// quarantineOwned quarantines the directory if it belongs to the volume. It returns the
// name in TempDir, empty if there was no directory. One that is not owned was put back.
func (d *Deletion) quarantineOwned(ctx context.Context, kind string) (name string, owned bool, err error) {
	name, err = d.quarantine(ctx, kind)
	if err != nil || d.held == nil && name == "" {
		return "", err == nil, err
	}
	if err := d.Step(ctx, "check owner of quarantined directory"); err != nil {
		return "", false, err
	}
	owned, err = d.ownsDirectory()
	if err == nil && !owned {
		err = d.putBack(name)
	}
	return name, owned, err
}

// quarantine renames the volume's directory into TempDir and returns its name there, or
// "" if there is no directory.
func (d *Deletion) quarantine(ctx context.Context, kind string) (name string, err error) {
	to, err := d.Cat.Quarantine(kind, d.ID.SubDir)
	if err != nil {
		return "", err
	}
	from, err := fsat.OpenPlace(d.Root, d.ID.SubDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer from.Close()
	if from.Parent == d.Root {
		from.At = d.Cat.Export()
	}
	if err := d.Step(ctx, "quarantine directory"); err != nil {
		return "", err
	}
	for range fsat.MaxLostRaces {
		err = from.Rename(to)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESTALE) {
			return to.Name, err
		}
		// Already gone, or the reply to a successful rename was lost, or the client has
		// an earlier volume's directory cached.
		// Its parent may be gone, too.
		if exists, _, statErr := fsat.DirectoryNow(from.Parent, from.Name); statErr != nil || !exists {
			return "", fsat.IgnoreNotExist(statErr)
		}
	}
	return "", fmt.Errorf("%w: %s is being replaced: %w", volume.ErrInProgress, d.ID.SubDir, err)
}

// putBack returns another volume's directory to its path. If it is gone, it was this
// volume's and has been discarded by another delete.
func (d *Deletion) putBack(name string) error {
	if name == "" {
		return nil
	}
	temp, _, err := d.Cat.Temp("")
	if err != nil {
		return err
	}
	to, err := fsat.MakePlace(d.Root, d.ID.SubDir)
	if err != nil {
		return err
	}
	defer to.Close()
	return fsat.IgnoreNotExist(fsat.Place{At: temp, Name: name}.Rename(to))
}

// discard moves to the trash what this call has quarantined, or what earlier calls have
// if name is empty.
func (d *Deletion) discard(ctx context.Context, name string) error {
	if err := d.Step(ctx, "move directory to trash"); err != nil {
		return err
	}
	if name != "" {
		return d.Cat.DiscardQuarantined(d.ID.SubDir, name)
	}
	return d.discardQuarantined()
}

func (d *Deletion) discardQuarantined() error {
	names, err := d.Cat.Quarantined(catalog.DeletedKind, d.ID.SubDir)
	for _, name := range names {
		err = errors.Join(err, d.Cat.DiscardQuarantined(d.ID.SubDir, path.Base(name)))
	}
	return err
}

// finishDiscard discards what killed calls left quarantined.
func (d *Deletion) finishDiscard() error {
	if owned, err := d.ownsDirectory(); err != nil || !owned {
		return err
	}
	return d.discardQuarantined()
}
