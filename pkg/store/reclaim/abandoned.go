package reclaim

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
)

// endAbandoned moves what dead processes left in tmp to the trash. A process that only
// seems dead, as after an hour without a network, finds it gone: nothing is removed in
// a place from which it could still be renamed. It returns what the export had no space
// to move.
func endAbandoned(ctx context.Context, x *session.Session, age time.Duration) (unmoved []string, failed error) {
	names, err := x.Cat.Abandoned(age)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		owner, err := neededBy(x, path.Base(name))
		if owner != "" {
			klog.FromContext(ctx).Info("Kept the directory of an unfinished deletion: its volume has no other. "+
				"Delete the volume, or move the directory back", logkeys.Directory, name, logkeys.VolumeID, owner)
			continue
		}
		if err == nil {
			err = x.Cat.EndStaging(name)
		}
		if fsat.IsFull(err) {
			unmoved = append(unmoved, name)
			continue
		}
		failed = errors.Join(failed, err)
	}
	return unmoved, failed
}

// neededBy returns the ID of the volume that has no directory but this quarantined one,
// if there is such a volume: its deletion is still to be repeated, or it was created
// after the one that was deleted, by a call that was delayed and then killed.
func neededBy(x *session.Session, quarantined string) (owner string, err error) {
	subDir, ok := catalog.QuarantinedFrom(quarantined)
	if !ok {
		return "", nil
	}
	rec, err := x.Cat.Read(subDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if there, _, err := fsat.DirectoryNow(x.Root, subDir); err != nil || there {
		return "", err
	}
	return rec.ID, nil
}
