package copies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/legacy"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// content is an open source. Its tree may be that of a volume in use.
type content struct {
	root  *os.Root
	where func() (*os.Root, error) // opens it again by its name
	// frozen content does not change, and bytes and entries are known. Capacity is that of
	// the volume, or of the snapshot's volume, 0 if unknown.
	frozen         bool
	bytes, entries int64
	capacity       int64
	tarball        *legacy.Tarball
	clock          func(context.Context) (time.Time, error) // of the server
	close          func()
}

// openSource opens a source. This process does not delete it while it is open;
// content.copyTo detects when another one did.
func (c *Copies) openSource(ctx context.Context, src *volumes.Source, target *session.Session) (*content, error) {
	release := c.Use(keyOf(src))
	x, closing := target.On(target.Key), release // a session of its own: clock opens it again
	if exportOf(src) != target.Key.Export {
		held, letGo, err := c.cfg.Exports.Hold(ctx, c.cfg.Target(session.Key{Export: exportOf(src)}, nil))
		if err != nil {
			release()
			return nil, fmt.Errorf("source: %w", err)
		}
		x, closing = held, func() { letGo(); release() }
	}
	from, err := openContent(x, src)
	if err != nil {
		closing()
		return nil, fmt.Errorf("source: %w", err)
	}
	from.clock = func(ctx context.Context) (time.Time, error) {
		if err := x.Open(); err != nil {
			return time.Time{}, err
		}
		return x.Cat.ServerTime(ctx)
	}
	from.close = func() {
		if from.root != nil {
			from.root.Close()
		}
		if from.tarball != nil {
			from.tarball.Close()
		}
		closing()
	}
	return from, nil
}

func openContent(x *session.Session, src *volumes.Source) (*content, error) {
	if err := x.Look(); err != nil {
		return nil, err
	}
	if src.Volume != nil {
		return openVolume(x, *src.Volume)
	}
	return openSnapshot(x, *src.Snapshot)
}

func openVolume(x *session.Session, id volume.ID) (*content, error) {
	rec, err := volumes.Find(x, id) // fails if the directory is that of a later volume
	if err == nil && rec.Name == "" {
		// Made by another provisioner: do not copy volumes nested in it.
		err = x.Records().CheckNotNested(id.SubDir)
	}
	where := func() (*os.Root, error) {
		if err := fsat.RevalidateRoot(x.Root); err != nil {
			return nil, err
		}
		return fsat.OpenDirectory(x.Root, id.SubDir)
	}
	var root *os.Root
	if err == nil {
		root, err = where()
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, volume.ErrOwned) {
		return nil, fmt.Errorf("%w: %s: %w", volume.ErrNotFound, id.Export.Source(id.SubDir), err)
	}
	if err != nil {
		return nil, err
	}
	return &content{root: root, where: where, capacity: rec.Capacity}, nil
}

func openSnapshot(x *session.Session, id volume.SnapshotID) (*content, error) {
	rec, err := x.Records().ReadSnapshot(catalog.SnapshotPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		t, err := legacy.Open(x, id)
		if err != nil {
			return nil, err
		}
		return &content{tarball: t, frozen: true}, nil
	}
	if err == nil && rec.ID != id.String() {
		err = fmt.Errorf("%w: %s has become %s", volume.ErrSnapshotNotFound, id, rec.ID)
	}
	if err != nil {
		return nil, err
	}
	where := func() (*os.Root, error) { return openData(x.Root, id) }
	root, err := where()
	if err != nil {
		return nil, err
	}
	return &content{root: root, where: where, frozen: true, bytes: rec.Bytes, entries: rec.Entries, capacity: rec.Capacity}, nil
}

// openData opens the content of a snapshot.
func openData(export *os.Root, id volume.SnapshotID) (*os.Root, error) {
	cat, err := catalog.Open(export)
	if err != nil {
		return nil, err
	}
	dir, err := fsat.OpenDirectory(cat.Meta(), path.Join(catalog.SnapshotPath(id), catalog.SnapshotData))
	return dir, errors.Join(err, cat.Close())
}

// copyTo copies the content and then checks that the source is still in its place. A
// delete starts with a rename, so such a source has lost nothing to it.
func (c *content) copyTo(ctx context.Context, to *os.Root, opts tree.CopyOptions) error {
	p := opts.Progress
	p.Reset() // an earlier attempt may have counted
	if c.tarball != nil {
		return c.tarball.Extract(ctx, to, opts)
	}
	if c.frozen {
		p.SetTotal(c.bytes, c.entries)
	}
	opts.Frozen = c.frozen
	err := tree.Copy(ctx, c.root, to, opts)
	if errors.Is(err, tree.ErrChanged) {
		err = fmt.Errorf("%w: %w", volume.ErrInUse, err)
	}
	if err != nil {
		return err
	}
	if c.frozen && p.Entries() != c.entries {
		return fmt.Errorf("%w: the snapshot has %d of its %d files", volume.ErrInUse, p.Entries(), c.entries)
	}
	again, err := c.where()
	if err != nil {
		return fmt.Errorf("%w: the source was deleted while it was copied: %w", volume.ErrNotFound, err)
	}
	defer again.Close()
	before, errB := c.root.Stat(".")
	after, errA := again.Stat(".")
	if err := errors.Join(errB, errA); err != nil {
		return err
	}
	if !os.SameFile(before, after) {
		return fmt.Errorf("%w: the source was deleted while it was copied", volume.ErrNotFound)
	}
	return nil
}
