// Package session opens exports for jobs: one at a time per volume, a bounded number per
// server, with a timeout for the caller and a retry after ESTALE.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Key of a job's subject and lock: the same in all calls for a volume.
type Key struct {
	Export volume.Export
	SubDir string
}

func (k Key) String() string { return k.Export.Source(k.SubDir) }

// SnapshotKey is never that of a volume: no volume is in the catalog's directory.
func SnapshotKey(id volume.SnapshotID) Key {
	return Key{Export: id.Export, SubDir: path.Join(volume.MetaDir, catalog.SnapshotPath(id))}
}

// GroupKey is SnapshotKey for a group.
func GroupKey(id volume.GroupID) Key {
	return Key{Export: id.Export, SubDir: path.Join(volume.MetaDir, catalog.GroupPath(id.Name))}
}

// Session is an export opened for one job.
type Session struct {
	Key Key
	// Root is the export's directory.
	Root *os.Root
	// Cat is the export's catalog; nil after Look if the export has none, for example
	// because its volumes are all static.
	Cat *catalog.Catalog

	handle  *share.Handle
	exports *Exports
}

// Step announces a step that changes the export. The job must end on an error.
func (s *Session) Step(ctx context.Context, name string) error { return s.exports.cfg.Step(ctx, name) }

// Open opens the catalog, and creates it if needed. It stays open as long as the mount.
func (s *Session) Open() error {
	kept, err := s.handle.Keep(func(root *os.Root) (io.Closer, error) { return catalog.Open(root) })
	if err != nil {
		return s.explainRefused(err)
	}
	cat, ok := kept.(*catalog.Catalog)
	if !ok {
		return fmt.Errorf("store: the mount keeps a %T", kept)
	}
	if err := cat.Check(); err != nil {
		return err
	}
	s.Cat = cat
	return nil
}

// Look opens the catalog if there is one.
func (s *Session) Look() error {
	_, err := s.Root.Lstat(volume.MetaDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Open()
}

// On returns the same session for another key.
func (s *Session) On(k Key) *Session {
	other := *s
	other.Key = k
	return &other
}
