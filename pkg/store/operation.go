package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/reclaim"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// keepAliveEvery is how often a copy says that it has not been abandoned.
const keepAliveEvery = reclaim.AbandonedAfter / 12

// endWorkers is how many files of a copy that has failed are removed at a time.
const endWorkers = 4

// operation is a copy in the making: a directory in the catalog's tmp that only
// its maker writes to. Taking it out of there, which is one rename, ends it for
// whoever makes it: what it was to become is then never put in its place.
type operation struct {
	*session.Session
	name string   // below Cat.Meta()
	dirs []string // that it was made with
}

// scratchDir is what a copy needs besides its target. It is gone when the copy is
// whole.
const scratchDir = "scratch"

// beginOperation makes a new operation with these directories in it and then ends all
// others for the same thing, those of processes that were killed and those of another controller. Of
// two that do this at a time at most one is left, and whoever is left sees, if
// it looks after this, whether another one got to its end before.
func beginOperation(ctx context.Context, x *session.Session, dirs ...string) (*operation, error) {
	name, err := x.Cat.TempName(catalog.StagingKind(x.Key.SubDir))
	if err != nil {
		return nil, err
	}
	if err := x.Step(ctx, "begin copy"); err != nil {
		return nil, err
	}
	if err := x.Cat.Meta().Mkdir(name, 0o700); err != nil {
		return nil, err
	}
	op := &operation{Session: x, name: name, dirs: dirs}
	for _, dir := range dirs {
		if err := x.Cat.Meta().Mkdir(path.Join(name, dir), 0o700); err != nil {
			return nil, op.unlessTaken(err)
		}
	}
	if err := x.Cat.EndStagings(x.Key.SubDir, name); err != nil {
		return nil, err
	}
	return op, nil
}

// openData is the place of what is copied.
func (o *operation) openData() (fsat.Place, error) {
	dir, err := o.Cat.Meta().OpenRoot(o.name)
	if err != nil {
		return fsat.Place{}, err
	}
	return fsat.NewPlace(dir, catalog.SnapshotData), nil
}

// fill copies the content into the operation.
func (o *operation) fill(ctx context.Context, from *content, workers int, t copyjob.Task) error {
	defer o.keepAlive(ctx)()
	return o.copyInto(ctx, catalog.SnapshotData, from, workers, t)
}

// copyInto copies the content into a directory of the operation.
func (o *operation) copyInto(ctx context.Context, dir string, from *content, workers int, t copyjob.Task) error {
	to, err := o.Cat.Meta().OpenRoot(path.Join(o.name, dir))
	if err != nil {
		return err
	}
	defer to.Close()
	scratch := path.Join(o.name, scratchDir)
	made := false
	err = from.copyTo(ctx, to, tree.CopyOptions{
		Workers: workers, Progress: t.Progress, Pause: t.Pause,
		Scratch: func() (*os.Root, error) {
			if err := o.Cat.Meta().Mkdir(scratch, 0o700); err != nil {
				return nil, err
			}
			made = true
			return o.Cat.Meta().OpenRoot(scratch)
		},
	})
	if err == nil && made {
		err = o.Step(ctx, "remove scratch")
	}
	if err == nil && made {
		_, err = tree.Remove(ctx, o.Cat.Meta(), scratch, workers)
	}
	return err
}

func (o *operation) keepAlive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(keepAliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := o.Cat.KeepAlive(o.name); err != nil {
					klog.FromContext(ctx).Error(err, "Could not tell that a copy is still being made", "operation", o.name)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// end takes the operation away, with what was not put in its place.
func (o *operation) end(ctx context.Context) error {
	err := o.Cat.Discard(o.name)
	if fsat.IsFull(err) {
		// Not even the trash has room, unless this makes it.
		_, err = tree.Remove(ctx, o.Cat.Meta(), o.name, endWorkers)
	}
	return err
}

// unlessTaken returns errTaken instead of an error that another controller caused by
// ending the operation.
func (o *operation) unlessTaken(err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESTALE) {
		return err
	}
	for _, dir := range append(o.dirs, ".") { // which go one after the other
		if _, lookErr := o.Cat.Meta().Lstat(path.Join(o.name, dir)); errors.Is(lookErr, fs.ErrNotExist) {
			return errTaken
		}
	}
	return err
}

// placeVolume renames the copy to its place in the export, where parents may be
// missing, or go with another volume's delete.
func (o *operation) placeVolume(subDir string) error {
	from, err := o.openData()
	if err == nil {
		defer from.Close()
	}
	for range fsat.MaxLostRaces {
		if err == nil {
			var to fsat.Place
			if to, err = fsat.MakePlace(o.Root, subDir); err != nil {
				return err
			}
			err = from.Rename(to)
			to.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if _, err = o.Cat.Meta().Lstat(path.Join(o.name, catalog.SnapshotData)); errors.Is(err, fs.ErrNotExist) {
			return errTaken
		}
		err = nil
	}
	return fmt.Errorf("the directories above %s keep disappearing", subDir)
}

// place renames all of the operation to a place of the catalog. The error is
// errFaster when there is what another one has put there.
func (o *operation) place(where string) error {
	if err := o.Cat.Meta().MkdirAll(path.Dir(where), 0o700); err != nil {
		return err
	}
	err := o.Cat.Meta().Rename(o.name, where)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
		return errFaster
	}
	return o.unlessTaken(err)
}

// errFaster: another controller has made the same.
var errFaster = errors.New("it is there already")

var (
	errTaken = fmt.Errorf("%w: another controller makes it as well", volume.ErrInProgress)
	// errUnclaimed: a controller whose copy failed, or a delete, has taken back what
	// belongs to the volume.
	errUnclaimed = fmt.Errorf("%w: its record was removed while it was copied", volume.ErrInProgress)
)
