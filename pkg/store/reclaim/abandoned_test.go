package reclaim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
)

func TestAbandonedTempFilesAreReclaimed(t *testing.T) {
	l := newLab(t, Config{AbandonedAfter: -time.Minute}) // files changed just now count as old
	rec := catalog.Record{SubDir: "pvc-1", ID: "id", Name: "pvc-1"}
	if err := l.onCatalog(t, func(x *session.Session) error { return x.Cat.Create(rec) }); err != nil {
		t.Fatal(err)
	}
	l.put(t, "pvc-1/file")
	l.put(t, ".nfs-csi/tmp/record-1700000000000000000-X")
	l.put(t, ".nfs-csi/tmp/deleted0123456789abcdef-1700000000000000000-X.gone/file")
	l.put(t, ".nfs-csi/tmp/kept0123456789abcdef-1700000000000000000-X.archived/file")
	// Symlinks of others, to what a copy would contain.
	l.put(t, "victim/data/precious")
	for i, target := range []string{filepath.Join(l.dir, "victim"), "../../victim"} {
		for _, kind := range []string{"copy.volume.0123456789abcdef", "copy.snapshot.0123456789abcdef", "deleted0123456789abcdef"} {
			if err := os.Symlink(target, filepath.Join(l.dir, fmt.Sprintf(".nfs-csi/tmp/%s-1700000000000000000-%d", kind, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.Kick(l.target)
	l.Wait()
	left, err := os.ReadDir(filepath.Join(l.dir, ".nfs-csi/tmp"))
	if err != nil || len(left) != 1 || !strings.HasPrefix(left[0].Name(), "kept") {
		t.Errorf("left in tmp: %v, %v", left, err)
	}
	if err := l.onCatalog(t, func(x *session.Session) error {
		_, err := x.Cat.Read("pvc-1")
		return err
	}); err != nil {
		t.Errorf("the record of a volume: %v", err)
	}
	for _, name := range []string{"pvc-1/file", "victim/data/precious"} {
		if _, err := os.Stat(filepath.Join(l.dir, name)); err != nil {
			t.Error(err)
		}
	}
	if n := l.inTrash(t, "*"); n != 0 {
		t.Errorf("%d trees are left in the trash", n)
	}
}
