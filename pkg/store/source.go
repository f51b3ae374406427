package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Source is what a volume is made from: one of the two.
type Source struct {
	Volume   *volume.ID
	Snapshot *volume.SnapshotID
}

func (s *Source) String() string {
	switch {
	case s == nil:
		return ""
	case s.Volume != nil:
		id := *s.Volume
		id.OnDelete = "" // does not tell volumes apart
		return "volume " + id.String()
	}
	return "snapshot " + s.Snapshot.String()
}

func (s *Source) export() volume.Export {
	if s.Volume != nil {
		return s.Volume.Export
	}
	return s.Snapshot.Export
}

func (s *Source) key() key {
	if s.Volume != nil {
		return key{s.Volume.Export, s.Volume.SubDir}
	}
	return snapshotKey(*s.Snapshot)
}

// content is an opened source. Its tree may be that of a volume in use.
type content struct {
	root  *os.Root
	where func() (*os.Root, error) // opens it again by its name
	// frozen content has known figures; capacity is that of a volume.
	frozen         bool
	bytes, entries int64
	capacity       int64
	archive        *archive
	close          func()
}

// openSource opens what is to be copied. While it is open, it is not deleted by
// this process; that nobody else did is for content.copyTo to see.
func (s *Store) openSource(ctx context.Context, src *Source, target *share.Handle, sameExport bool) (*content, error) {
	release := s.copies.use(src.key())
	closing := release
	h := target
	if !sameExport {
		var err error
		if h, err = s.cfg.Shares.AcquireAny(ctx, src.export(), s.cfg.MountOptions); err != nil {
			release()
			return nil, fmt.Errorf("source: %w", err)
		}
		closing = func() { h.Release(); release() }
	}
	var c *content
	err := withCatalog(h, func(cat *catalog.Catalog) (err error) {
		if src.Volume != nil {
			c, err = openVolume(h.Root(), cat, *src.Volume)
		} else {
			c, err = openSnapshot(h.Root(), cat, *src.Snapshot)
		}
		return err
	})
	if err != nil {
		closing()
		return nil, fmt.Errorf("source: %w", err)
	}
	c.close = func() {
		if c.root != nil {
			c.root.Close()
		}
		if c.archive != nil {
			c.archive.close()
		}
		closing()
	}
	return c, nil
}

func openVolume(export *os.Root, cat *catalog.Catalog, id volume.ID) (*content, error) {
	rec, err := cat.Read(id.SubDir)
	switch {
	case err == nil:
		err = mayDelete(rec, id) // the directory is of that volume, not of a later one
	case errors.Is(err, fs.ErrNotExist):
		// Made by a predecessor; it must not give away volumes within it.
		err = cat.Conflict(id.SubDir)
	}
	if errors.Is(err, volume.ErrOwned) {
		return nil, fmt.Errorf("%w: %w", volume.ErrNotFound, err)
	}
	if err != nil {
		return nil, err
	}
	where := func() (*os.Root, error) { return openTree(export, id.SubDir) }
	root, err := where()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", volume.ErrNotFound, id.Export.Source(id.SubDir))
	}
	if err != nil {
		return nil, err
	}
	return &content{root: root, where: where, capacity: rec.Capacity}, nil
}

func openSnapshot(export *os.Root, cat *catalog.Catalog, id volume.SnapshotID) (*content, error) {
	rec, err := cat.ReadSnapshot(id.Name)
	if errors.Is(err, fs.ErrNotExist) {
		a, err := openArchive(export, cat, id)
		if err != nil {
			return nil, err
		}
		return &content{archive: a, frozen: true}, nil
	}
	if err == nil && rec.ID != id.String() {
		err = fmt.Errorf("%w: %s has become %s", volume.ErrSnapshotNotFound, id, rec.ID)
	}
	if err != nil {
		return nil, err
	}
	data := path.Join(volume.MetaDir, catalog.SnapshotPath(id.Name), catalog.SnapshotData)
	where := func() (*os.Root, error) { return openTree(export, data) }
	root, err := where()
	if err != nil {
		return nil, err
	}
	return &content{root: root, where: where, frozen: true, bytes: rec.Bytes, entries: rec.Entries}, nil
}

// openTree opens a directory below root without following a symlink on the way.
func openTree(root *os.Root, name string) (*os.Root, error) {
	dir, err := root.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(name, "/") {
		next, err := enterTree(dir, part)
		dir.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		dir = next
	}
	return dir, nil
}

func enterTree(dir *os.Root, name string) (*os.Root, error) {
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("%w: %s is not a directory", fs.ErrNotExist, name)
	}
	next, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if after, err := next.Stat("."); err != nil || !os.SameFile(before, after) {
		next.Close()
		return nil, fmt.Errorf("%w: %s was replaced while it was opened", fs.ErrNotExist, name)
	}
	return next, nil
}

// copyTo copies the content. In the end it looks whether all of it was there all
// the time: deleting begins with a rename, so a source that is still in its
// place has lost nothing to a delete.
func (c *content) copyTo(ctx context.Context, to *os.Root, workers int, p *tree.Progress) error {
	if c.archive != nil {
		return c.archive.extract(ctx, to, p)
	}
	if c.frozen {
		p.SetTotal(c.bytes, c.entries)
	}
	if err := tree.Copy(ctx, c.root, to, tree.CopyOptions{Workers: workers, Frozen: c.frozen, Progress: p}); err != nil {
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
