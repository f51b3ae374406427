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

// quarantined is a directory by its name in TempDir; empty if there was none. What was
// not the volume's is where it was.
type quarantined struct {
	name string
	own  bool
}

// quarantineOwn takes the directory if it is that of the volume.
func (d *Deletion) quarantineOwn(ctx context.Context, kind string) (quarantined, error) {
	name, err := d.quarantine(ctx, kind)
	if err != nil {
		return quarantined{}, err
	}
	if d.held == nil && name == "" {
		return quarantined{own: true}, nil
	}
	if err := d.Step(ctx, "see whose directory it was"); err != nil {
		return quarantined{}, err
	}
	own, err := d.stillOwned()
	if err == nil && !own {
		err = d.putBack(name)
	}
	return quarantined{name, own}, err
}

// quarantine renames the volume's directory, however much is in it, and returns its new
// name; none if there is no directory.
func (d *Deletion) quarantine(ctx context.Context, kind string) (name string, err error) {
	temp, name, err := d.Cat.Temp(kind)
	if err != nil {
		return "", err
	}
	name = catalog.QuarantineName(name, d.id.SubDir)
	from, err := fsat.OpenPlace(d.Root, d.id.SubDir)
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
	if err := d.Step(ctx, "take directory away"); err != nil {
		return "", err
	}
	for range fsat.MaxLostRaces {
		err = from.Rename(fsat.Place{At: temp, Name: name})
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESTALE) {
			return name, err
		}
		// Gone before, or the reply to a rename that took place was lost, or the client
		// remembers the directory of a volume before this one.
		if there, _, lookErr := lookAgain(from); lookErr != nil || !there {
			return "", lookErr
		}
	}
	return "", fmt.Errorf("%w: %s is being replaced: %w", volume.ErrInProgress, d.id.SubDir, err)
}

// lookAgain is fsat.DirectoryNow for a place; a parent that is gone has nothing in it.
func lookAgain(p fsat.Place) (bool, fs.FileInfo, error) {
	there, info, err := fsat.DirectoryNow(p.Parent, p.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, nil
	}
	return there, info, err
}

// putBack gives a directory back that is another volume's. Where it is gone, it was
// the volume's own, and whoever ended that has discarded it.
func (d *Deletion) putBack(name string) error {
	if name == "" {
		return nil
	}
	temp, _, err := d.Cat.Temp("")
	if err != nil {
		return err
	}
	to, err := fsat.MakePlace(d.Root, d.id.SubDir)
	if err != nil {
		return err
	}
	defer to.Close()
	return fsat.IgnoreNotExist(fsat.Place{At: temp, Name: name}.Rename(to))
}

// discard moves to the trash what was quarantined by this call or, where it found
// no directory, by an earlier one that did not get further.
func (d *Deletion) discard(ctx context.Context, name string) error {
	if err := d.Step(ctx, "move directory to trash"); err != nil {
		return err
	}
	if name != "" {
		return d.Cat.DiscardQuarantined(d.id.SubDir, name)
	}
	return d.discardQuarantined()
}

func (d *Deletion) discardQuarantined() error {
	names, err := d.Cat.Temporary(catalog.QuarantineKind(d.Key.SubDir))
	for _, name := range names {
		err = errors.Join(err, d.Cat.DiscardQuarantined(d.id.SubDir, path.Base(name)))
	}
	return err
}

// finishDiscard is discard for a volume of which nothing else is left.
func (d *Deletion) finishDiscard() error {
	if own, err := d.stillOwned(); err != nil || !own {
		return err
	}
	return d.discardQuarantined()
}
