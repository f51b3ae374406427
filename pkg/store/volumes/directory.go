package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// DefaultMode is the mode of a new volume's directory. Pods run under any uid and all
// must be able to write, as with both predecessors. This does not expose other volumes:
// the node mounts nothing above this directory. Modes require that the process runs with
// umask 0.
const DefaultMode volume.Mode = 0o777

// unfinishedMode marks a directory that still lacks its owner and mode: only root can
// enter it, and no volume has this mode.
const unfinishedMode volume.Mode = 0

// needsFinishing reports whether mkdir(2) alone cannot set the directory's owner and mode.
func needsFinishing(rec catalog.Record) bool {
	return rec.UID != nil || rec.GID != nil || !modeOf(rec).Plain()
}

func modeOf(rec catalog.Record) volume.Mode {
	if rec.Mode == 0 {
		return DefaultMode
	}
	return rec.Mode
}

// isUnfinished reports whether an earlier call created the directory but did not set its
// owner and mode.
func isUnfinished(rec catalog.Record, info fs.FileInfo) bool {
	return !rec.Adopted && needsFinishing(rec) && info.Mode().Perm() == unfinishedMode.FileMode()
}

// makeDirectory creates the volume's directory: by one mkdir(2) with its mode, or
// unfinished if it also gets an owner. It is not renamed into place: rename(2) replaces an
// empty directory, which could be this very volume, created by another controller and
// already mounted by a pod.
func makeDirectory(ctx context.Context, x *session.Session, rec catalog.Record) (made bool, err error) {
	if err := x.Step(ctx, "create directory"); err != nil {
		return false, err
	}
	first := modeOf(rec)
	if needsFinishing(rec) {
		first = unfinishedMode
	}
	if made, err = mkdir(x.Root, rec.SubDir, first); err != nil {
		return false, err
	}
	if err := finishDirectory(ctx, x, rec); err != nil {
		return made, err
	}
	return made, x.Step(ctx, "answer")
}

// mkdir reports whether it created the directory.
func mkdir(root *os.Root, subDir string, mode volume.Mode) (made bool, err error) {
	err = fsat.InNewPlace(root, subDir, func(p fsat.Place) error { return p.Parent.Mkdir(p.Name, mode.FileMode()) })
	if errors.Is(err, fs.ErrExist) {
		_, _, err = fsat.Directory(root, subDir)
		return false, err
	}
	return err == nil, err
}

// finishDirectory sets the owner of an unfinished directory, then its mode, because
// chown(2) clears setgid.
func finishDirectory(ctx context.Context, x *session.Session, rec catalog.Record) error {
	if !needsFinishing(rec) {
		return nil
	}
	p, err := fsat.OpenPlace(x.Root, rec.SubDir)
	if err != nil {
		return err
	}
	defer p.Close()
	info, err := p.Parent.Lstat(p.Name)
	if err != nil || !isUnfinished(rec, info) { // another controller finished it
		return err
	}
	err = setOwnerAndMode(ctx, x, p, rec)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, p.Rmdir())
	}
	return err
}

func setOwnerAndMode(ctx context.Context, x *session.Session, p fsat.Place, rec catalog.Record) error {
	if err := x.Step(ctx, "set owner of directory"); err != nil {
		return err
	}
	if err := Own(p, rec); err != nil {
		return err
	}
	if err := x.Step(ctx, "set mode of directory"); err != nil {
		return err
	}
	return p.Chmod(modeOf(rec))
}

// Own sets the owner of a directory to that of the record, if it has one.
//
// Errors: volume.ErrRefused.
func Own(p fsat.Place, rec catalog.Record) error {
	if rec.UID == nil && rec.GID == nil {
		return nil
	}
	uid, gid := -1, -1
	if rec.UID != nil {
		uid = int(*rec.UID)
	}
	if rec.GID != nil {
		gid = int(*rec.GID)
	}
	err := p.Parent.Lchown(p.Name, uid, gid)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w: the server does not let the driver change a directory's owner to %s; "+
			"export with no_root_squash, or omit uid and gid from the class: %w", volume.ErrRefused, owner(rec), err)
	}
	return err
}

func owner(rec catalog.Record) string {
	switch {
	case rec.UID == nil:
		return fmt.Sprintf("gid %d", *rec.GID)
	case rec.GID == nil:
		return fmt.Sprintf("uid %d", *rec.UID)
	}
	return fmt.Sprintf("uid %d, gid %d", *rec.UID, *rec.GID)
}
