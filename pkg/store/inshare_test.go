package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/deletion"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A directory that is a share itself holds the volumes of others: it is no volume of
// the share around it, is not made one, and is not deleted as one.
func TestShareWithinAShareIsSpared(t *testing.T) {
	l := newLab(t)
	l.put(t, "team/readme")
	team := l.shareWithin(t, "team")
	// Adopted before it was a share.
	adopted := l.createAs(t, l.classed("pvc-1", "team", volume.OnDeleteDelete))
	l.createOn(t, team, "pvc-2")
	l.put(t, "team/pvc-2/precious")
	l.spared(t, "team/pvc-2/precious", "delete of the adopted", l.Delete(t.Context(), adopted, nil))
	l.forgetRecord(t, "team")
	legacy := l.id("team")
	l.spared(t, "team/pvc-2/precious", "delete of a predecessor's", l.Delete(t.Context(), legacy, nil))
	legacy.OnDelete = volume.OnDeleteArchive
	l.spared(t, "team/pvc-2/precious", "archive of a predecessor's", l.Delete(t.Context(), legacy, nil))
	_, err := l.Create(t.Context(), l.classed("pvc-3", "team", volume.OnDeleteDelete))
	l.spared(t, "team/pvc-2/precious", "adoption", err)
}

// What is below such a directory is that share's as well.
func TestVolumesBelowAShareAreSpared(t *testing.T) {
	l := newLab(t)
	l.put(t, "team/readme")
	adopted := l.createAs(t, l.classed("pvc-0", "team/data", volume.OnDeleteDelete))
	l.put(t, "team/data/precious")
	l.forgetRecord(t, "team/data")
	within := l.classed("pvc-1", "data", volume.OnDeleteDelete)
	within.Params.Export = l.shareWithin(t, "team")
	l.createAs(t, within)
	for _, subDir := range []string{"team/data", "team/data/deeper", "team/new", "team/new/deeper"} {
		_, err := l.Create(t.Context(), l.classed("pvc-2", subDir, volume.OnDeleteDelete))
		l.spared(t, "team/data/precious", "a volume at "+subDir, err)
	}
	l.never(t, "quarantine directory")
	l.spared(t, "team/data/precious", "delete of a predecessor's", l.Delete(t.Context(), adopted, nil))
}

// There is no room for records either: nobody has looked yet whose it is.
func TestShareWithinAShareIsSparedOnAFullDisk(t *testing.T) {
	l := newLab(t)
	l.createOn(t, l.shareWithin(t, "team"), "pvc-1")
	l.put(t, "team/pvc-1/precious")
	err := l.exports.On(t.Context(), l.target(l.export, "team", nil), func(ctx context.Context, x *session.Session) error {
		return (&deletion.Deletion{
			ID: l.id("team"), Volumes: l.cfg.volumes(), Workers: l.cfg.ReclaimWorkers, Free: l.copies.Free,
		}).InPlace(ctx, x, unix.ENOSPC)
	})
	if !errors.Is(err, volume.ErrOwned) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want ErrOwned, and that there is no room", err)
	}
	l.mustHaveOn(t, "team/pvc-1/precious")
}

// Nothing is deleted of what is kept, so that nobody needs to know whose it is.
func TestShareWithinAShareIsRetained(t *testing.T) {
	for _, policy := range []volume.OnDelete{volume.OnDeleteRetain, volume.OnDeleteDelete, volume.OnDeleteArchive} {
		l := newLab(t)
		l.put(t, "data/file")
		adopted := l.createAs(t, l.classed("pvc-1", "data", policy))
		l.put(t, "data/.nfs-csi/file")
		for _, what := range []string{"adopted", "predecessor's"} {
			adopted.OnDelete = policy
			if err := l.Delete(t.Context(), adopted, nil); (err == nil) != (policy == volume.OnDeleteRetain) {
				t.Errorf("%s, %s: %v", what, policy, err)
			}
			l.mustHaveOn(t, "data/file")
			l.forgetRecord(t, "data")
		}
	}
}

// shareWithin makes a share of a directory of the export.
func (l *lab) shareWithin(t *testing.T, dir string) volume.Export {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(l.dir, dir), 0o755); err != nil {
		t.Fatal(err)
	}
	within := volume.Export{Server: l.export.Server, Share: l.export.Share + "/" + dir}
	l.fake.AddExport(within, filepath.Join(l.dir, dir))
	return within
}

// spared checks that what was done was refused, and left the file.
func (l *lab) spared(t *testing.T, file, what string, err error) {
	t.Helper()
	if !errors.Is(err, volume.ErrOwned) {
		t.Errorf("%s: %v, want ErrOwned", what, err)
	}
	if got := l.content(t, file); got != file {
		t.Errorf("%s leaves %q", what, got)
	}
}

func (l *lab) mustHaveOn(t *testing.T, name string) {
	t.Helper()
	if got := l.content(t, name); got != name {
		t.Errorf("%s holds %q", name, got)
	}
}

func (l *lab) forgetRecord(t *testing.T, subDir string) {
	t.Helper()
	err := l.onCatalog(t, func(x *session.Session) error {
		rec, err := x.Cat.Read(subDir)
		if err != nil {
			return fsat.IgnoreNotExist(err)
		}
		return x.Cat.Remove(rec)
	})
	if err != nil {
		t.Fatal(err)
	}
}
