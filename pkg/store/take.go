package store

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

// taken is a directory by its name in TempDir; empty if there was none. What was
// not the volume's is where it was.
type taken struct {
	name string
	mine bool
}

// takeMine takes the directory if it is that of the volume.
func (d *deletion) takeMine(ctx context.Context, kind string) (taken, error) {
	name, err := d.take(ctx, kind)
	if err != nil {
		return taken{}, err
	}
	if d.held == nil && name == "" {
		return taken{mine: true}, nil
	}
	if err := d.Step(ctx, "see whose directory it was"); err != nil {
		return taken{}, err
	}
	mine, err := d.mine()
	if err == nil && !mine {
		err = d.putBack(name)
	}
	return taken{name, mine}, err
}

// take renames the volume's directory, however much is in it, and returns its new
// name; none if there is no directory.
func (d *deletion) take(ctx context.Context, kind string) (name string, err error) {
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

// lookAgain is directoryNow for a place; a parent that is gone has nothing in it.
func lookAgain(p fsat.Place) (bool, fs.FileInfo, error) {
	there, info, err := fsat.DirectoryNow(p.Parent, p.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, nil
	}
	return there, info, err
}

// putBack gives a directory back that is another volume's. Where it is gone, it was
// the volume's own, and whoever ended that has discarded it.
func (d *deletion) putBack(taken string) error {
	if taken == "" {
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
	return fsat.IgnoreNotExist(fsat.Place{At: temp, Name: taken}.Rename(to))
}

// discardTaken moves to the trash what was taken by this call or, where it found
// no directory, by an earlier one that did not get further.
func (d *deletion) discardTaken(ctx context.Context, taken string) error {
	if err := d.Step(ctx, "move directory to trash"); err != nil {
		return err
	}
	if taken != "" {
		return d.Cat.DiscardQuarantined(d.id.SubDir, taken)
	}
	return d.discardAllTaken()
}

func (d *deletion) discardAllTaken() error {
	names, err := d.Cat.Temporary(catalog.QuarantineKind(d.Key.SubDir))
	for _, name := range names {
		err = errors.Join(err, d.Cat.DiscardQuarantined(d.id.SubDir, path.Base(name)))
	}
	return err
}

// finishTaken is discardTaken for a volume of which nothing else is left.
func (d *deletion) finishTaken() error {
	if mine, err := d.mine(); err != nil || !mine {
		return err
	}
	return d.discardAllTaken()
}
