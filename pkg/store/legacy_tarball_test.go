package store

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// putTarball leaves a snapshot as csi-driver-nfs makes them.
func (l *lab) putTarball(t *testing.T, path string) {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o770, Uid: os.Getuid(), Gid: os.Getgid()},
		{Typeflag: tar.TypeReg, Name: "./file", Mode: 0o640, Size: 3, Uid: os.Getuid(), Gid: os.Getgid()},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("abc")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(l.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotOfCSIDriverNFS(t *testing.T) {
	l := newLab(t)
	l.putTarball(t, "snapshot-1/pvc-old.tar.gz")
	id, err := volume.ParseSnapshotID("nfs.test#export#snapshot-1#snapshot-1#pvc-old")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := l.GetSnapshot(t.Context(), id, nil); err != nil || s.SourceID != "nfs.test#export#pvc-old##delete" {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := l.Create(t.Context(), l.from("new", Source{Snapshot: &id})); err != nil {
		t.Fatal(err)
	}
	if got := l.content(t, "new/file"); got != "abc" {
		t.Errorf("restored %q", got)
	}
	wrong := id
	wrong.Source = "pvc-other"
	if err := l.DeleteSnapshot(t.Context(), wrong, nil); err != nil {
		t.Error(err)
	}
	l.mustHave(t, append(live("new"), "new/file", "snapshot-1", "snapshot-1/pvc-old.tar.gz")...)
	if err := l.DeleteSnapshot(t.Context(), id, nil); err != nil {
		t.Error(err)
	}
	l.mustHave(t, append(live("new"), "new/file")...)
}

// A tarball may be replaced by a fifo between lstat and open. The test exchanges the
// two until that has happened.
func TestTarballReplacedByAFifo(t *testing.T) {
	l := newLab(t)
	l.putTarball(t, "s/old.tar")
	name := filepath.Join(l.dir, "s/old.tar")
	if err := unix.Mkfifo(name+".fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
				err = unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, name+".fifo", unix.RENAME_EXCHANGE)
			}
		}
		stopped <- err
	}()
	id := volume.SnapshotID{Export: l.export, Name: "s", Source: "old"}
	replaced := false
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && !replaced; {
		_, err := l.GetSnapshot(t.Context(), id, nil)
		if err != nil && !errors.Is(err, volume.ErrSnapshotNotFound) {
			t.Fatal(err)
		}
		replaced = err != nil && strings.Contains(err.Error(), "replaced while it was opened")
	}
	close(stop)
	if err := <-stopped; err != nil || !replaced {
		t.Errorf("replaced between the two: %v, %v", replaced, err)
	}
}

// A volume is not a snapshot, whatever it contains.
func TestTarballInAVolumeIsNotDeleted(t *testing.T) {
	l := newLab(t)
	l.create(t, "pvc-1")
	l.putTarball(t, "pvc-1/x.tar.gz")
	id := volume.SnapshotID{Export: l.export, Name: "pvc-1", Source: "x"}
	if err := l.DeleteSnapshot(t.Context(), id, nil); err != nil {
		t.Error(err)
	}
	if _, err := l.Create(t.Context(), l.from("new", Source{Snapshot: &id})); !errors.Is(err, volume.ErrSnapshotNotFound) {
		t.Errorf("restored from a volume: %v", err)
	}
	l.mustHave(t, append(live("pvc-1"), "pvc-1/x.tar.gz")...)
}
