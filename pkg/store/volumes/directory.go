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

// DefaultMode of a new volume's directory unless said otherwise: pods run under
// any uid and all must be able to write, as both predecessors have it. Other
// volumes are no more reachable for that; the node mounts nothing above this
// directory. The process must run with umask 0 for modes to be as given.
const DefaultMode volume.Mode = 0o777

// unfinished is the mode of a directory that is still to get its owner and its
// mode: nobody but root enters it, and no volume has it, since it would be of no
// use to anyone.
const unfinished volume.Mode = 0

// inSteps tells whether the directory cannot be made as it is to be by mkdir(2)
// alone.
func inSteps(rec catalog.Record) bool {
	return rec.UID != nil || rec.GID != nil || !modeOf(rec).Plain()
}

func modeOf(rec catalog.Record) volume.Mode {
	if rec.Mode == 0 {
		return DefaultMode
	}
	return rec.Mode
}

// halfMade tells whether an earlier call made the directory and did not come to
// give it its owner and mode.
func halfMade(rec catalog.Record, info fs.FileInfo) bool {
	return !rec.Adopted && inSteps(rec) && info.Mode().Perm() == unfinished.FileMode()
}

// completeDirectory makes the directory, or does what is left to do for one that
// is half made.
// It tells whether the directory was made now.
func completeDirectory(ctx context.Context, x *session.Session, rec catalog.Record, half bool) (made bool, err error) {
	if half {
		return false, finishDirectory(ctx, x, rec)
	}
	return makeDirectory(ctx, x, rec)
}

// makeDirectory makes the volume's directory, in one step that either leaves it
// with its mode or not at all, or, where it is to have an owner, as unfinished
// first. It is not made elsewhere and renamed into place: over an empty
// directory rename(2) succeeds, and that could be this very volume, made by
// another controller and mounted by a pod already.
func makeDirectory(ctx context.Context, x *session.Session, rec catalog.Record) (made bool, err error) {
	if err := x.Step(ctx, "make directory"); err != nil {
		return false, err
	}
	first := modeOf(rec)
	if inSteps(rec) {
		first = unfinished
	}
	if made, err = mkdir(x.Root, rec.SubDir, first); err != nil {
		return false, err
	}
	if err := finishDirectory(ctx, x, rec); err != nil {
		return made, err
	}
	return made, x.Step(ctx, "answer")
}

// mkdir tells whether the directory was not there before.
func mkdir(root *os.Root, subDir string, mode volume.Mode) (made bool, err error) {
	for range fsat.MaxLostRaces {
		p, err := fsat.MakePlace(root, subDir)
		if err != nil {
			return false, err
		}
		err = p.Parent.Mkdir(p.Name, mode.FileMode())
		p.Close()
		switch {
		case errors.Is(err, fs.ErrExist):
			_, _, err = fsat.Directory(root, subDir)
			return false, err
		case errors.Is(err, fs.ErrNotExist): // its parent was pruned meanwhile
			continue
		}
		return err == nil, err
	}
	return false, fmt.Errorf("the directories above %s keep disappearing", subDir)
}

// finishDirectory gives a directory that is unfinished its owner and, last, its
// mode. chown(2) would clear setgid.
func finishDirectory(ctx context.Context, x *session.Session, rec catalog.Record) error {
	if !inSteps(rec) {
		return nil
	}
	p, err := fsat.OpenPlace(x.Root, rec.SubDir)
	if err != nil {
		return err
	}
	defer p.Close()
	info, err := p.Parent.Lstat(p.Name)
	if err != nil || !halfMade(rec, info) { // another controller was here
		return err
	}
	err = settle(ctx, x, p, rec)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, p.Rmdir())
	}
	return err
}

func settle(ctx context.Context, x *session.Session, p fsat.Place, rec catalog.Record) error {
	if err := x.Step(ctx, "own directory"); err != nil {
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

// Own gives the directory the owner that its record asks for.
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
		return fmt.Errorf("%w: the server does not let the driver give a directory to %s; "+
			"export with no_root_squash, or leave uid and gid out of the class: %w", volume.ErrRefused, owner(rec), err)
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
