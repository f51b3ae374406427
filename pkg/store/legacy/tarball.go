// Package legacy reads the snapshots of csi-driver-nfs, which are tarballs:
// <share>/<snapshot>/<volume>.tar.gz, or .tar.
package legacy

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

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Tarball is an open snapshot.
type Tarball struct {
	// Source is the volume, as far as the file name tells: its ID is not recorded.
	Source volume.ID
	// Created is when the file was last modified.
	Created time.Time

	file       *os.File
	compressed bool
}

// Endings of the file names of tarballs.
func Endings() []string { return []string{".tar.gz", ".tar"} }

// Open opens the tarball of a snapshot without following symlinks. It is
// volume.ErrSnapshotNotFound if there is none; a file in a volume is not a snapshot.
func Open(x *session.Session, id volume.SnapshotID) (*Tarball, error) {
	if err := checkPlace(x, id); err != nil {
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
	for _, ending := range Endings() {
		f, info, err := openFile(dir, path.Base(where)+ending)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &Tarball{
			Source:  volume.ID{Export: id.Export, SubDir: id.Source, Name: id.Source},
			Created: info.ModTime().Truncate(time.Second),
			file:    f, compressed: path.Ext(ending) == ".gz",
		}, nil
	}
	return nil, fmt.Errorf("%w: %s", volume.ErrSnapshotNotFound, id)
}

// openFile opens a regular file; fs.ErrNotExist if there is none of this name.
func openFile(dir *os.Root, name string) (*os.File, fs.FileInfo, error) {
	before, err := dir.Lstat(name)
	if errors.Is(err, unix.ENAMETOOLONG) || err == nil && !before.Mode().IsRegular() {
		return nil, nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, nil, err
	}
	// O_NONBLOCK: opening a fifo without a writer would block.
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	after, err := f.Stat()
	if err != nil || !os.SameFile(before, after) {
		f.Close() //nolint:errcheck // only opened to read
		return nil, nil, fmt.Errorf("%w: %s was replaced while it was opened", volume.ErrSnapshotNotFound, name)
	}
	return f, after, nil
}

// checkPlace returns volume.ErrSnapshotNotFound when the tarball would be in a volume,
// or csi-driver-nfs cannot have made the snapshot.
func checkPlace(x *session.Session, id volume.SnapshotID) error {
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

// Close closes the file.
func (t *Tarball) Close() { t.file.Close() } //nolint:errcheck // only opened to read

// Extract unpacks the tarball into a directory.
func (t *Tarball) Extract(ctx context.Context, to *os.Root, opts tree.CopyOptions) error {
	return tree.Extract(ctx, &pausingReader{ctx, t.file, opts.Pause}, t.compressed, to, opts.Progress)
}

// pausingReader calls pause before each read.
type pausingReader struct {
	ctx   context.Context
	r     io.Reader
	pause func(context.Context) error
}

func (p *pausingReader) Read(b []byte) (int, error) {
	if err := p.pause(p.ctx); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}
