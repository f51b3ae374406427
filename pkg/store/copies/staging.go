package copies

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
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/reclaim"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	// heartbeatInterval is the time between two heartbeats of a copy.
	heartbeatInterval = reclaim.AbandonedAfter / 12
	// removeWorkers is how many files of a failed copy are removed at a time.
	removeWorkers = 4
	// scratchDir holds what a copy needs besides its target, until the copy is complete.
	scratchDir = "scratch"
)

// staging is the directory in the catalog's tmp where a copy is made. Only its owner
// writes to it. Whoever renames it ends the copy: its content is then never put in
// place.
type staging struct {
	*session.Session
	name string   // below Cat.Meta()
	dirs []string // created with it
}

// newStaging creates a staging directory with these directories in it, and then ends
// all others for the same key: those of killed processes and those of other
// controllers. Of two concurrent calls at most one staging directory is left. Its owner
// can then check whether another copy was completed before.
func newStaging(ctx context.Context, x *session.Session, dirs ...string) (*staging, error) {
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
	st := &staging{Session: x, name: name, dirs: dirs}
	for _, dir := range dirs {
		if err := x.Cat.Meta().Mkdir(path.Join(name, dir), 0o700); err != nil {
			return nil, st.explain(err)
		}
	}
	if err := x.Cat.EndStagings(x.Key.SubDir, name); err != nil {
		return nil, err
	}
	return st, nil
}

// openData opens the place of the content.
func (st *staging) openData() (fsat.Place, error) {
	dir, err := st.Cat.Meta().OpenRoot(st.name)
	if err != nil {
		return fsat.Place{}, err
	}
	return fsat.NewPlace(dir, catalog.SnapshotData), nil
}

// fill copies the content into the staging directory.
func (st *staging) fill(ctx context.Context, from *content, workers int, t copyjob.Task) error {
	defer st.heartbeat(ctx)()
	return st.copyInto(ctx, catalog.SnapshotData, from, workers, t)
}

// copyInto copies the content into a directory below the staging directory.
func (st *staging) copyInto(ctx context.Context, dir string, from *content, workers int, t copyjob.Task) error {
	to, err := st.Cat.Meta().OpenRoot(path.Join(st.name, dir))
	if err != nil {
		return err
	}
	defer to.Close()
	scratch := path.Join(st.name, scratchDir)
	made := false
	err = from.copyTo(ctx, to, tree.CopyOptions{
		Workers: workers, Progress: t.Progress, Pause: t.Pause,
		Scratch: func() (*os.Root, error) {
			if err := st.Cat.Meta().Mkdir(scratch, 0o700); err != nil {
				return nil, err
			}
			made = true
			return st.Cat.Meta().OpenRoot(scratch)
		},
	})
	if err == nil && made {
		err = st.Step(ctx, "remove scratch")
	}
	if err == nil && made {
		_, err = tree.Remove(ctx, st.Cat.Meta(), scratch, workers)
	}
	return err
}

// heartbeat refreshes the staging directory until it is stopped, so that nobody takes
// it for abandoned.
func (st *staging) heartbeat(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(heartbeatInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := st.Cat.KeepAlive(st.name); err != nil {
					klog.FromContext(ctx).Error(err, "Failed to refresh copy heartbeat", logkeys.Staging, st.name)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// end discards the staging directory with what was not put in place.
func (st *staging) end(ctx context.Context) error {
	err := st.Cat.Discard(st.name)
	if fsat.IsFull(err) {
		// The rename into the trash needs space, too.
		_, err = tree.Remove(ctx, st.Cat.Meta(), st.name, removeWorkers)
	}
	return err
}

// explain replaces an error that another controller has caused by ending the copy with
// errSuperseded.
func (st *staging) explain(err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESTALE) {
		return err
	}
	for _, dir := range append(st.dirs, ".") { // EndStaging moves the content first
		if _, lookErr := st.Cat.Meta().Lstat(path.Join(st.name, dir)); errors.Is(lookErr, fs.ErrNotExist) {
			return errSuperseded
		}
	}
	return err
}

// placeVolume renames the content to its place in the export.
func (st *staging) placeVolume(subDir string) error {
	from, err := st.openData()
	if err != nil {
		return st.explain(err)
	}
	defer from.Close()
	return fsat.InNewPlace(st.Root, subDir, func(to fsat.Place) error { return st.explain(from.Rename(to)) })
}

// place renames the staging directory to its place in the catalog. Where another
// controller has put its copy there, this one is discarded.
func (st *staging) place(ctx context.Context, step, where string) error {
	if err := st.Step(ctx, step); err != nil {
		return err
	}
	if err := st.Cat.Meta().MkdirAll(path.Dir(where), 0o700); err != nil {
		return err
	}
	err := st.Cat.Meta().Rename(st.name, where)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
		err = st.end(ctx)
	} else {
		err = st.explain(err)
	}
	if err != nil {
		return err
	}
	return st.Step(ctx, "answer")
}

var (
	errSuperseded = fmt.Errorf("%w: another controller makes it as well", volume.ErrInProgress)
	errUnclaimed  = fmt.Errorf("%w: its record was removed while it was copied", volume.ErrInProgress)
)
