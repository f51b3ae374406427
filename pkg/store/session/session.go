// Package session opens exports for jobs on them: one job at a time on each volume, a
// bounded number on each server, never longer than a caller waits, and again when the
// mount has become stale.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Key of what a job works on, and of its lock: the same in every call, from whatever
// the call knows the volume by.
type Key struct {
	Export volume.Export
	SubDir string
}

func (k Key) String() string { return k.Export.Source(k.SubDir) }

// Session is an export that is open for one job.
type Session struct {
	Key Key
	// Root is the export's directory.
	Root *os.Root
	// Cat is the export's catalog; nil in a session that only looks at an export which
	// has none, as one with static volumes only.
	Cat *catalog.Catalog

	handle  *share.Handle
	exports *Exports
}

// Step comes before each step that changes the export. An error is to end the job.
func (s *Session) Step(ctx context.Context, name string) error { return s.exports.cfg.Step(ctx, name) }

// Open opens the catalog, and makes it if there is none. It stays open with the mount.
func (s *Session) Open() error {
	kept, err := s.handle.Keep(func(root *os.Root) (io.Closer, error) { return catalog.Open(root) })
	if err != nil {
		return err
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

// On is the same session for another key.
func (s *Session) On(k Key) *Session {
	other := *s
	other.Key = k
	return &other
}
