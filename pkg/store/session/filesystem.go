package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Below a share there may be other file systems of the server: other exports, or, if the
// share is a pseudo-root of NFSv4, nothing else. The catalog of a directory has to be in
// the directory's file system, because directories are renamed to and from it.

// CheckFileSystem returns volume.ErrInvalid for a directory that is not in the file system
// of its share. The error says which share to use.
func (s *Session) CheckFileSystem(subDir string) error {
	at, err := fsat.Boundary(s.Root, subDir)
	if err != nil || at == "" {
		return err
	}
	share := path.Join(s.Key.Export.Share, at)
	if at == path.Clean(subDir) {
		return fmt.Errorf("%w: share %q: the directory %s is itself the root of another file system; use share: %s and another subDir",
			volume.ErrInvalid, s.Key.Export.Share, subDir, share)
	}
	return fmt.Errorf("%w: share %q: the directory %s would be in another file system, which begins at %s; use share: %s and a subDir without %s/",
		volume.ErrInvalid, s.Key.Export.Share, subDir, at, share, at)
}

// explainRefused adds the share to use to the error of creating a catalog in a pseudo-root:
// it is read-only, or belongs to the server.
func (s *Session) explainRefused(err error) error {
	if s.Key.SubDir == "" || !errors.Is(err, unix.EROFS) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if elsewhere := s.CheckFileSystem(s.Key.SubDir); elsewhere != nil {
		return fmt.Errorf("%w: %w", elsewhere, err)
	}
	return err
}

// HasCatalog reports whether the share has a catalog, which need not be accessible.
func (s *Session) HasCatalog() (bool, error) {
	_, err := s.Root.Lstat(volume.MetaDir)
	return err == nil, fsat.IgnoreNotExist(err)
}

// Below returns the key of a directory by the share that begins at one on the way to it.
func (k Key) Below(at string) Key {
	k.Export.Share = path.Join(k.Export.Share, at)
	k.SubDir = strings.TrimPrefix(k.SubDir, at+"/")
	return k
}

// Also runs another job while this one holds its own lock. Locks are taken from a share to
// those below it.
func (s *Session) Also(ctx context.Context, t Target, job func(context.Context, *Session) error) error {
	return s.exports.inJob(ctx, t, job)
}
