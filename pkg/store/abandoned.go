package store

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
)

// endAbandoned moves to the trash what dead processes have left in tmp. One that
// only seems dead, as after an hour without a network, finds it gone: nothing is
// removed in a place from where somebody could still rename it. It returns what
// did not find room in the trash.
func endAbandoned(ctx context.Context, x *session.Session, after time.Duration) (left []string, failed error) {
	names, err := x.Cat.Abandoned(after)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		owner, err := missed(x, path.Base(name))
		if owner != "" {
			klog.FromContext(ctx).Info("Left a directory alone whose deletion did not come to an end: its volume has no other. "+
				"Delete the volume, or put the directory back in its place", "directory", name, "volume", owner)
			continue
		}
		if err == nil {
			err = x.Cat.EndStaging(name)
		}
		if fsat.IsFull(err) {
			left = append(left, name)
			continue
		}
		failed = errors.Join(failed, err)
	}
	return left, failed
}

// missed returns the ID of the live volume that a directory was taken from and
// that has none now. It is that of a delete which is still to be repeated, or, by
// a call that was held up and killed then, that of a later volume.
func missed(x *session.Session, taken string) (owner string, err error) {
	subDir, ok := catalog.QuarantinedFrom(taken)
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
