package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// tarball is a snapshot that csi-driver-nfs made: <share>/<snapName>/<srcName>
// with the ending .tar.gz or .tar.
type tarball struct {
	file       *os.File
	compressed bool
}

// openArchive opens the archive of a snapshot without following a symlink;
// volume.ErrSnapshotNotFound if there is none. What is in a volume is none.
func openArchive(x *session.Session, id volume.SnapshotID) (*tarball, error) {
	if err := mayBeArchive(x, id); err != nil {
		return nil, err
	}
	where := path.Join(id.Name, id.Source)
	dir, err := fsat.OpenDirectory(x.Root, path.Dir(where))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, volume.ErrOwned) {
		return nil, fmt.Errorf("%w: %s: %w", volume.ErrSnapshotNotFound, id, err)
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for _, ending := range volumes.TarballEndings() {
		name := path.Base(where) + ending
		before, err := dir.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENAMETOOLONG) || err == nil && !before.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return nil, err
		}
		// O_NONBLOCK, should it have become a fifo, which has no writer.
		f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		if after, err := f.Stat(); err != nil || !os.SameFile(before, after) {
			f.Close() //nolint:errcheck // only opened to read
			return nil, fmt.Errorf("%w: %s was replaced while it was opened", volume.ErrSnapshotNotFound, name)
		}
		return &tarball{file: f, compressed: path.Ext(ending) == ".gz"}, nil
	}
	return nil, fmt.Errorf("%w: %s", volume.ErrSnapshotNotFound, id)
}

// mayBeArchive returns volume.ErrSnapshotNotFound when the place of the archive is
// in a volume, or the snapshot one that csi-driver-nfs never made.
func mayBeArchive(x *session.Session, id volume.SnapshotID) error {
	if id.Group != "" {
		return fmt.Errorf("%w: %s", volume.ErrSnapshotNotFound, id)
	}
	if _, err := x.Records().Read(id.Name); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%w: %s is that of a volume", volume.ErrSnapshotNotFound, id.Name), err)
	}
	if err := x.Records().CheckNotNested(id.Name); err != nil {
		return fmt.Errorf("%w: %w", volume.ErrSnapshotNotFound, err)
	}
	return nil
}

func (a *tarball) close() { a.file.Close() } //nolint:errcheck // only opened to read

func (a *tarball) extract(ctx context.Context, to *os.Root, opts tree.CopyOptions) error {
	return tree.Extract(ctx, &pausing{ctx, a.file, opts.Pause}, a.compressed, to, opts.Progress)
}

// pausing pauses before each read.
type pausing struct {
	ctx   context.Context //nolint:containedctx // io.Reader has no other way
	r     io.Reader
	pause func(context.Context) error
}

func (p *pausing) Read(b []byte) (int, error) {
	if err := p.pause(p.ctx); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}

// findArchive describes a snapshot of csi-driver-nfs, of which only the archive
// tells. What the volume's ID was is not known for sure.
func findArchive(x *session.Session, id volume.SnapshotID) (Snapshot, error) {
	a, err := openArchive(x, id)
	if err != nil {
		return Snapshot{}, err
	}
	defer a.close()
	info, err := a.file.Stat()
	if err != nil {
		return Snapshot{}, err
	}
	source := volume.ID{Export: id.Export, SubDir: id.Source, Name: id.Source}
	return Snapshot{ID: id, SourceID: source.String(), Created: info.ModTime().Truncate(time.Second)}, nil
}

// deleteArchive moves the directory of a snapshot of csi-driver-nfs to the
// trash: one that has the archive and belongs to no volume.
func (s *Store) deleteArchive(ctx context.Context, x *session.Session, id volume.SnapshotID) error {
	d := &deletion{Store: s, Session: x.On(session.Key{Export: id.Export, SubDir: id.Name}), id: volume.ID{Export: id.Export, SubDir: id.Name}}
	a, err := openArchive(x, id)
	if errors.Is(err, volume.ErrSnapshotNotFound) {
		return d.finishTaken()
	}
	if err != nil {
		return err
	}
	a.close()
	taken, err := d.takeMine(ctx, catalog.QuarantineKind(d.Key.SubDir))
	if err != nil || !taken.mine || taken.name == "" {
		return err
	}
	return d.discardTaken(ctx, taken.name)
}
